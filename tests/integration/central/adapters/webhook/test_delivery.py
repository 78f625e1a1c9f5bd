"""The webhook adapter over real sockets: requests as receivers see them, quick tries, and receivers that misbehave."""

import asyncio
import base64
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import standardwebhooks
import trustme

from fieldpost import verify_webhook
from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.exchange import BODY_BYTES_KEPT, HEADER_CHARACTERS_KEPT
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
)
from fieldpost.core.events.signature import make_signing_secret
from fieldpost.core.secret import Secret
from fieldpost.core.times import to_text
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import HttpServer
from support.ports import closed_port
from support.token_server import token_server
from support.webhooks import DATED, ID, SECRET, webhook

FORMER = make_signing_secret(bytes(range(32, 64)))


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with HttpServer() as server:
        yield server


@pytest.fixture
async def outbound() -> AsyncIterator[Outbound]:
    outbound = Outbound(OutboundOptions(allow="127.0.0.1"))
    yield outbound
    await outbound.close()


async def deliver(server: HttpServer, outbound: Outbound, deadline_s: float = 30.0, **settings: Any) -> Outcome:
    return await WebhookAdapter(outbound=outbound, deadline_s=deadline_s).deliver(
        webhook(f"{server.url}/in", **settings)
    )


@pytest.mark.dec("DEC-49")
@pytest.mark.req("WHK-02")
async def test_a_request_carries_signature_idempotency_key_and_correlation_id(
    server: HttpServer, outbound: Outbound
) -> None:
    assert isinstance(await deliver(server, outbound, headers={"X-Team": "shop"}), Delivered)
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/in")
    assert request.headers["webhook-id"] == request.headers["idempotency-key"] == ID
    assert request.headers["x-correlation-id"] == "trace-%C3%BC1"
    assert request.headers["x-team"] == "shop"
    assert request.headers["content-type"] == "application/json"
    assert verify_webhook(SECRET.reveal(), request.headers, request.body).webhook_id == ID
    assert json.loads(request.body)["data"] == {"order": 17}


@pytest.mark.dec("DEC-49")
@pytest.mark.parametrize("format", ["standard", "cloudevents", "raw"])
@pytest.mark.parametrize(
    ("age", "former_is_valid"),
    [(None, False), (timedelta(hours=23), True), (timedelta(hours=24), False)],
    ids=["before", "during", "after"],
)
async def test_the_reference_library_accepts_every_request_around_a_rotation(
    server: HttpServer, outbound: Outbound, format: str, age: timedelta | None, former_is_valid: bool
) -> None:
    rotated = {"former_secret": FORMER, "rotated_at": to_text(datetime.now(UTC) - age)} if age is not None else {}
    server.on().answer(500).times(1)
    await deliver(server, outbound, format=format, **rotated)
    first, second = server.requests
    assert first.body == second.body, "the same bytes at every try"
    for request in (first, second):
        standardwebhooks.Webhook(SECRET.reveal()).verify(request.body, dict(request.headers))
        assert verify_webhook(SECRET.reveal(), request.headers, request.body).webhook_id == ID
        if former_is_valid:
            standardwebhooks.Webhook(FORMER.reveal()).verify(request.body, dict(request.headers))
        else:
            assert len(request.headers["webhook-signature"].split(" ")) == 1


@pytest.mark.parametrize(
    ("settings", "header", "value"),
    [
        ({"auth": "header", "auth_header": "X-Api-Key", "auth_secret": Secret("k3y")}, "x-api-key", "k3y"),
        ({"auth": "header", "auth_header": "Authorization", "auth_secret": Secret("Key k")}, "authorization", "Key k"),
        (
            {"auth": "basic", "username": "ann", "auth_secret": Secret("pw")},
            "authorization",
            "Basic " + base64.b64encode(b"ann:pw").decode(),
        ),
    ],
)
async def test_credentials_are_sent_and_hidden_in_the_record(
    server: HttpServer, outbound: Outbound, settings: dict[str, Any], header: str, value: str
) -> None:
    outcome = await deliver(server, outbound, **settings)
    assert server.requests[0].headers[header] == value
    [exchange] = outcome.exchanges
    shown = {name.lower(): text for name, text in exchange.request_headers.items()}
    assert shown[header] == shown["webhook-signature"] == "***"
    assert shown["webhook-id"] == ID


async def test_an_oauth2_token_is_fetched_once_and_again_after_401(server: HttpServer, outbound: Outbound) -> None:
    async with token_server() as tokens:
        oauth = {
            "auth": "oauth2",
            "token_url": tokens.url,
            "client_id": "fieldpost",
            "auth_secret": Secret("client secret"),
        }
        for _ in range(2):
            await deliver(server, outbound, **oauth)
        server.on().answer(401).times(1)
        assert isinstance(await deliver(server, outbound, **oauth), TransientFailure)
        await deliver(server, outbound, **oauth)
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == [f"Bearer {token}" for token in (*[tokens.given[0]] * 3, tokens.given[1])]


async def test_without_a_token_the_notification_is_held_and_the_receiver_not_called(
    server: HttpServer, outbound: Outbound
) -> None:
    oauth = {"auth": "oauth2", "client_id": "a", "auth_secret": Secret("s")}
    outcome = await deliver(server, outbound, token_url=f"{server.url}/no-token", **oauth)
    assert isinstance(outcome, Held)
    assert (outcome.phase, outcome.evidence) == ("token", Evidence.NONE)
    assert [request.path for request in server.requests] == ["/no-token"]


@pytest.mark.req("WHK-03", "WHK-18", "WHK-20")
@pytest.mark.dec("DEC-20", "DEC-82")
@pytest.mark.parametrize("status", [500, 502, 408, 429, 404])
async def test_a_quick_try_repeats_these_statuses(server: HttpServer, outbound: Outbound, status: int) -> None:
    server.on().answer(status).times(2)
    outcome = await deliver(server, outbound, retry_codes="404")
    assert isinstance(outcome, Delivered)
    [exchange] = outcome.exchanges
    assert [one.status for one in exchange.tries] == [status, status, 200]


@pytest.mark.req("WHK-19")
@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 409, 422])
async def test_other_statuses_are_not_repeated_and_counted(server: HttpServer, outbound: Outbound, status: int) -> None:
    server.on().answer(status)
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, TransientFailure)
    assert (outcome.evidence, len(server.requests)) == (Evidence.FAILS, 1)
    assert str(status) in outcome.error


@pytest.mark.req("WHK-18", "WHK-21")
@pytest.mark.dec("DEC-45")
@pytest.mark.parametrize("phase", ["connect", "tls"])
async def test_a_connection_that_fails_is_the_receivers_failure_and_repeated(outbound: Outbound, phase: str) -> None:
    """A closed port; a certificate of an unknown authority."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(serving)
    async with HttpServer(tls=serving) as server:
        port = server.port if phase == "tls" else closed_port()
        outcome = await WebhookAdapter(outbound=outbound).deliver(webhook(f"https://127.0.0.1:{port}/", quick_tries=2))
        assert not server.requests
    assert isinstance(outcome, TransientFailure)
    assert (outcome.phase, outcome.evidence) == (phase, Evidence.FAILS)
    assert [one.phase for one in outcome.exchanges[0].tries] == [phase] * 3


async def test_the_last_try_decides(server: HttpServer, outbound: Outbound) -> None:
    server.on().answer(503)
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, TransientFailure)
    assert (outcome.error, len(server.requests)) == ("the receiver answered 503", 5)


@pytest.mark.dec("DEC-82")
async def test_configured_permanent_codes_are_permanent_and_410_means_gone(
    server: HttpServer, outbound: Outbound
) -> None:
    server.on().answer(422).times(1)
    server.on().answer(410).times(1)
    given_up = await deliver(server, outbound, give_up_codes="422")
    gone = await deliver(server, outbound)
    assert isinstance(given_up, PermanentFailure)
    assert isinstance(gone, PermanentFailure)
    assert (given_up.is_gone, gone.is_gone) == (False, True)
    assert given_up.evidence is gone.evidence is Evidence.FAILS


@pytest.mark.fault(51)
@pytest.mark.req("WHK-18", "WHK-21")
@pytest.mark.dec("DEC-20", "DEC-60")
@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("3", 3),
        ("0", 1),
        ("999999999999", 24 * 3600),
        ("-1", None),
        ("abc", None),
        ("1e12", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 24 * 3600),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured_within_a_second_and_a_day(
    server: HttpServer, outbound: Outbound, header: str, wait_s: int | None, status: int
) -> None:
    server.on().answer(status, headers={"Retry-After": header})
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, TransientFailure)
    assert outcome.evidence is Evidence.FAILS, "a 429 is counted like any other failure"
    assert outcome.retry_after == (None if wait_s is None else timedelta(seconds=wait_s))
    assert len(server.requests) == (5 if wait_s is None else 1), "no quick try follows a Retry-After"


async def test_retry_after_counts_on_429_and_503_only(server: HttpServer, outbound: Outbound) -> None:
    server.on().answer(500, headers={"Retry-After": "60"})
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, TransientFailure)
    assert outcome.retry_after is None


@pytest.mark.fault(48)
@pytest.mark.dec("DEC-46", "DEC-82")
@pytest.mark.parametrize("how", ["hangs", "drips"])
async def test_a_receiver_that_hangs_ends_at_the_deadline_without_another_try(
    server: HttpServer, outbound: Outbound, how: str
) -> None:
    if how == "hangs":
        server.on().hang()
    else:
        server.on().answer(200, b"x" * 100).drip(0.5)
    async with asyncio.timeout(30):
        outcome = await deliver(server, outbound, deadline_s=1.5)
    assert isinstance(outcome, Uncertain)
    assert (outcome.evidence, outcome.phase, len(server.requests)) == (Evidence.FAILS, "answer", 1)


@pytest.mark.fault(48)
async def test_a_status_counts_even_if_the_body_drips(server: HttpServer, outbound: Outbound) -> None:
    server.on().raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nslow").then_hang()
    assert isinstance(await deliver(server, outbound, deadline_s=1.5), Delivered)


@pytest.mark.fault(49)
@pytest.mark.parametrize("is_packed", [False, True], ids=["huge", "gzip bomb"])
async def test_at_most_64_kib_of_a_response_are_read_and_1_kb_is_kept(
    server: HttpServer, outbound: Outbound, is_packed: bool
) -> None:
    if is_packed:
        bomb = gzip.compress(b"\0" * 50_000_000)
        server.on().answer(200, bomb, headers={"Content-Encoding": "gzip"})
    else:
        server.on().huge(5_000_000)
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, Delivered)
    assert len(outcome.exchanges[0].response_body) <= 1024


@pytest.mark.threat(16)
async def test_secret_at_the_end_of_the_stored_response_is_hidden_completely(
    server: HttpServer, outbound: Outbound
) -> None:
    secret = "correct-horse-battery-staple"
    body = b"x" * (BODY_BYTES_KEPT - 10) + secret.encode()
    header = "h" * (HEADER_CHARACTERS_KEPT - 10) + secret
    server.on().answer(403, body, headers={"X-Seen": header})
    auth = {"auth": "header", "auth_header": "X-Api-Key", "auth_secret": Secret(secret)}
    outcome = await deliver(server, outbound, **auth)
    kept = outcome.exchanges[0]
    assert kept.response_body.startswith("x" * 100)
    assert kept.response_headers["X-Seen"].startswith("h" * 100)
    assert "corr" not in kept.response_body + kept.response_headers["X-Seen"]


@pytest.mark.fault(50)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_a_failure_without_a_second_connection(
    server: HttpServer, outbound: Outbound, status: int
) -> None:
    server.on(path="/in").redirect(f"{server.url}/other", status)
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, TransientFailure)
    assert "redirects are not followed" in outcome.error
    assert ([request.path for request in server.requests], server.connection_count) == (["/in"], 1)


@pytest.mark.fault(52)
@pytest.mark.dec("DEC-49")
@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 299 Whatever\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\ncut off",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["204", "299", "reset in the body", "1xx flood"],
)
async def test_any_2xx_status_line_is_success(server: HttpServer, outbound: Outbound, raw: bytes) -> None:
    server.on().raw(raw).then_reset()
    assert isinstance(await deliver(server, outbound), Delivered)


@pytest.mark.dec("DEC-46")
async def test_a_connection_reset_after_the_request_is_uncertain(server: HttpServer, outbound: Outbound) -> None:
    server.on().reset()
    outcome = await deliver(server, outbound)
    assert isinstance(outcome, Uncertain)
    assert (outcome.evidence, len(server.requests)) == (Evidence.FAILS, 5)


@pytest.mark.fault(64)
async def test_a_connection_closed_while_idle_costs_no_try(server: HttpServer, outbound: Outbound) -> None:
    await deliver(server, outbound)
    server.close_connections()
    outcome = await deliver(server, outbound, quick_tries=0)
    assert isinstance(outcome, Delivered)
    assert [one.status for one in outcome.exchanges[0].tries] == [200]


@pytest.mark.threat(15)
async def test_a_blocked_address_is_connected_to_zero_times(server: HttpServer) -> None:
    outbound = Outbound()
    outcome = await deliver(server, outbound)
    await outbound.close()
    assert isinstance(outcome, Held)
    assert (outcome.phase, outcome.evidence) == ("guard", Evidence.NONE)
    assert server.connection_count == 0


async def test_stored_settings_that_are_invalid_park_with_the_reason(server: HttpServer, outbound: Outbound) -> None:
    outcome = await deliver(server, outbound, format="xml")
    assert isinstance(outcome, PermanentFailure)
    assert "the settings are invalid: format must be one of" in outcome.error
    assert not server.requests


@pytest.mark.dec("DEC-62")
async def test_410_fails_the_target_of_a_list_and_the_others_get_it(server: HttpServer, outbound: Outbound) -> None:
    server.on(path="/gone").answer(410)
    of_list = Envelope(
        notification_id=ID,
        list_name="hooks",
        subject="Pump 3",
        body="It stopped.",
        targets=(f"{server.url}/gone", f"{server.url}/good"),
        settings={"secret": SECRET},
        dated=DATED,
        gate=lambda: None,
    )
    outcome = await WebhookAdapter(outbound=outbound).deliver(of_list)
    assert isinstance(outcome, PermanentFailure)
    assert {t.address.rpartition("/")[2]: t.status.value for t in outcome.targets} == {
        "gone": "failed",
        "good": "delivered",
    }
    assert (outcome.evidence, outcome.is_gone) == (Evidence.WORKS, False)
    assert json.loads(server.requests[0].body)["type"] == "fieldpost.notification"
