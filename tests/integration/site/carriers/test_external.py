"""Calls of an external system over real sockets, to a server that misbehaves."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from fieldpost.clock import SystemClock
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused, Taken
from fieldpost.core.sites.message import Category, Message
from fieldpost.outbound.options import OutboundOptions
from fieldpost.site.carriers.call_arguments import check_call
from fieldpost.site.carriers.http import ExternalCarrier
from fieldpost.site.carriers.payloads import encode
from fieldpost.site.config.external import External
from fieldpost.testing import HttpServer, ManualClock
from support.ports import closed_port

OPERATION = "01978d5e-0000-7000-8000-000000000001"


class World:
    """One external system, its definition and a carrier."""

    def __init__(self, server: HttpServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.carrier = ExternalCarrier(SystemClock())
        self.url = server.url

    def definition(self, **changes: Any) -> External:
        return External(**({"name": "erp", "folder": self.folder, "url": self.url, "timeout_s": 30.0} | changes))

    async def call(
        self, method: str = "POST", path: str = "/orders", defined: dict[str, Any] | None = None, **arguments: Any
    ) -> CarrierAnswer:
        definition = self.definition(**(defined or {}))
        return await self.carrier.attempt(message(definition, method, path, **arguments), definition)


def message(definition: External, method: str = "POST", path: str = "/orders", **arguments: Any) -> Message:
    return Message(
        sequence=1,
        message_id=OPERATION,
        category=Category.EXTERNAL_CALL,
        target=definition.name,
        payload=encode(check_call(definition, method, path, **arguments)),
        created_at=datetime(2026, 11, 15, tzinfo=UTC),
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with HttpServer() as server:
        made = World(server, tmp_path)
        yield made
        await made.carrier.close()


def write_secret(file: Path, text: str, mode: int = 0o600) -> None:
    file.write_text(text)
    os.chmod(file, mode)


@pytest.mark.req("SF-17", "MSG-05")
async def test_call_arrives_unchanged_under_its_call_id(world: World) -> None:
    write_secret(world.folder / "erp.secret", "Bearer abc.def\n")
    world.url += "/api/v2/"
    answer = await world.call(
        "put",
        "/orders/7 a%2Fb/ü",
        {"headers": {"Accept": "application/json", "X-Plant": "7"}, "secret_headers": {"Authorization": "erp.secret"}},
        query={"dry": True, "unit": ["a b", "c&d"], "n": 3},
        headers={"x-plant": "8"},
        json={"count": 1, "name": "Pumpe ü"},
    )
    assert answer == Taken(http_status=200)
    (request,) = world.server.requests
    assert request.method == "PUT"
    assert request.target == "/api/v2/orders/7%20a%2Fb/%C3%BC?dry=true&unit=a+b&unit=c%26d&n=3"
    assert request.body == '{"count":1,"name":"Pumpe ü"}'.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == OPERATION
    assert request.headers["authorization"] == "Bearer abc.def"
    assert request.headers["accept"] == "application/json"
    assert request.headers["x-plant"] == "8"


@pytest.mark.parametrize(
    ("body", "content_type"), [(b"\x00\xff", "application/octet-stream"), ("läuft", "text/plain; charset=utf-8")]
)
async def test_a_body_of_bytes_or_text_arrives_unchanged(world: World, body: str | bytes, content_type: str) -> None:
    assert isinstance(await world.call(body=body), Taken)
    assert isinstance(await world.call(body=body, headers={"Content-Type": "text/csv"}), Taken)
    first, second = world.server.requests
    assert first.body == (body if isinstance(body, bytes) else body.encode())
    assert first.headers["content-type"] == content_type
    assert second.headers["content-type"] == "text/csv"


@pytest.mark.req("SF-13", "SF-14", "DEC-23")
@pytest.mark.parametrize("status", [500, 503, 408, 429])
async def test_transient_status_keeps_the_call(world: World, status: int) -> None:
    world.server.on().answer(status, "come back\r\n  later", {"Retry-After": "7"})
    answer = await world.call()
    assert isinstance(answer, NotNow)
    assert (answer.wait_s, answer.http_status) == (7, status)
    assert f"erp answered {status}" in answer.error
    assert answer.error.endswith(": come back later")


@pytest.mark.req("SF-13", "SF-15")
@pytest.mark.parametrize("status", [400, 401, 404, 409, 422])
async def test_permanent_status_rejects_the_call_with_the_reason(world: World, status: int) -> None:
    world.server.on().answer(status, "no such order")
    answer = await world.call()
    assert isinstance(answer, Refused)
    assert (answer.code, answer.http_status) == ("external.refused", status)
    assert answer.error.endswith(": no such order")


async def test_redirect_is_a_rejection_and_never_followed(world: World) -> None:
    world.server.on(path="/orders").redirect("/elsewhere")
    answer = await world.call()
    assert isinstance(answer, Refused)
    assert (answer.code, answer.http_status) == ("external.redirected", 307)
    assert "/elsewhere" in answer.error
    assert [request.path for request in world.server.requests] == ["/orders"]


@pytest.mark.req("SF-13", "SF-14")
async def test_failed_connection_keeps_the_call(world: World) -> None:
    answer = await world.call(defined={"url": f"http://127.0.0.1:{closed_port()}"})
    assert isinstance(answer, NotNow)
    assert "carried out" not in answer.error


@pytest.mark.req("SF-14")
@pytest.mark.parametrize("how", ["hang", "reset", "close"])
async def test_a_request_without_an_answer_is_kept_as_uncertain_and_repeated_under_the_same_key(
    world: World, how: str
) -> None:
    getattr(world.server.on(), how)().times(1)
    # The request must be on its way before the time is up.
    answer = await world.call(defined={"timeout_s": 2.0 if how == "hang" else 30.0})
    assert isinstance(answer, NotNow)
    assert "the call may have been carried out" in answer.error
    assert isinstance(await world.call(), Taken)
    first, second = world.server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == OPERATION


@pytest.mark.req("SF-14")
async def test_an_answer_that_drips_is_cut_off_by_one_deadline_for_all(world: World) -> None:
    world.server.on().answer(503, b"x" * 1000).drip(0.05)
    started = asyncio.get_running_loop().time()
    answer = await world.call(defined={"timeout_s": 0.4})
    assert isinstance(answer, NotNow)
    assert asyncio.get_running_loop().time() - started < 20, "of the fifty that it drips"


async def test_status_of_a_huge_or_broken_answer_counts_and_little_is_read(world: World) -> None:
    world.server.on().huge(20_000_000, 404).times(1)
    answer = await world.call()
    assert isinstance(answer, Refused)
    assert len(answer.error) < 500
    world.server.on().raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").then_close().times(1)
    assert isinstance(await world.call(), Taken)
    world.server.on().raw(b"SSH-2.0-OpenSSH\r\n\r\n").then_close().times(1)
    assert isinstance(await world.call(), NotNow)


@pytest.mark.parametrize(
    ("text", "wait_s"), [("Sun, 15 Nov 2026 12:00:30 GMT", 30), ("never", None), (None, None), ("999999999999", 1e9)]
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(world: World, text: str | None, wait_s: float) -> None:
    world.carrier = ExternalCarrier(ManualClock(datetime(2026, 11, 15, 12, 0, tzinfo=UTC)))
    world.server.on().answer(503, headers={} if text is None else {"Retry-After": text})
    answer = await world.call(defined={"timeout_s": 30})
    assert isinstance(answer, NotNow)
    assert answer.wait_s == wait_s


@pytest.mark.fault(64)
async def test_connections_are_reused_and_one_that_ended_idle_costs_no_attempt(world: World) -> None:
    for _ in range(3):
        assert isinstance(await world.call(), Taken)
    assert world.server.connection_count == 1
    # It ends while the next request is on its way: the client cannot have known.
    world.server.on().close().times(1)
    assert isinstance(await world.call(), Taken)
    assert world.server.connection_count == 2


async def test_a_server_that_was_restarted_is_called_again_at_once(world: World) -> None:
    assert isinstance(await world.call(), Taken)
    await world.server.stop()
    await world.server.start()
    assert isinstance(await world.call(), Taken)


@pytest.mark.threat(23)
async def test_secrets_never_appear_in_an_error(world: World) -> None:
    write_secret(world.folder / "erp.secret", "Bearer very-secret-token-123")
    write_secret(world.folder / "key.secret", "hunter2-hunter2")
    defined = {"secret_headers": {"Authorization": "erp.secret", "X-Api-Key": "key.secret"}}
    world.server.on().answer(403, "denied for Bearer very-secret-token-123 / hunter2-hunter2").times(1)
    world.server.on().redirect("https://example.com/?k=hunter2-hunter2").times(1)
    for _ in range(2):
        answer = await world.call(defined=defined)
        assert isinstance(answer, Refused)
        assert "very-secret" not in answer.error
        assert "hunter2" not in answer.error
        assert "***" in answer.error
    definition = world.definition(**defined)
    assert "hunter2" not in repr(definition) + repr(definition.secrets())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: None, "does not exist"),
        (lambda file: write_secret(file, "x", 0o644), "can be read by other users"),
        (lambda file: write_secret(file, ""), "must have 1 to"),
        (lambda file: write_secret(file, "a\nb"), "does not contain a valid header value"),
        (lambda file: file.mkdir(), "cannot be read"),
    ],
)
async def test_a_secret_file_that_cannot_be_used_keeps_the_call_unsent(world: World, make: Any, said: str) -> None:
    make(world.folder / "erp.secret")
    answer = await world.call(defined={"secret_headers": {"Authorization": "erp.secret"}})
    assert isinstance(answer, NotNow)
    assert said in answer.error
    assert "secret_headers.Authorization" in answer.error
    assert world.server.requests == []


@pytest.mark.req("SF-19")
async def test_calls_to_a_removed_system_are_rejected_by_name(world: World) -> None:
    answer = await world.carrier.attempt(message(world.definition()), None)
    assert answer == Refused("external.undefined", "site.toml no longer defines the external system 'erp'")


@pytest.mark.parametrize("payload", ["", "{}", "[]", '{"method":"GET","path":"/","body":"!","is_base64":true}', "\x00"])
async def test_a_payload_that_cannot_be_read_is_refused_not_raised(world: World, payload: str) -> None:
    broken = Message(
        sequence=1,
        message_id=OPERATION,
        category=Category.EXTERNAL_CALL,
        target="erp",
        payload=payload,
        created_at=datetime(2026, 11, 15, tzinfo=UTC),
    )
    answer = await world.carrier.attempt(broken, world.definition())
    assert isinstance(answer, Refused)
    assert answer.code == "message.corrupt"


@pytest.mark.dec("DEC-35")
@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.1.1", "0.0.0.0", "fe80::1", "::ffff:169.254.169.254"])
async def test_metadata_or_link_local_address_is_never_called(tmp_path: Path, address: str) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return [address]

    carrier = ExternalCarrier(SystemClock(), resolve=resolve)
    definition = External(name="erp", folder=tmp_path, url="https://erp.example.com")
    answer = await carrier.attempt(message(definition), definition)
    await carrier.close()
    assert isinstance(answer, Refused)
    assert answer.code == "external.blocked"


@pytest.mark.dec("DEC-35")
async def test_a_private_address_is_called_and_a_denied_one_when_it_is_listed_by_name(world: World) -> None:
    async def resolve(host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"] if host == "erp.internal" else ["0.0.0.0"]

    url = f"http://%s:{world.server.port}"
    world.carrier = ExternalCarrier(SystemClock(), OutboundOptions(allow="odd.internal"), resolve=resolve)
    plain = {"allows_plain_http": True}
    assert isinstance(await world.call(defined={"url": url % "erp.internal", **plain}), Taken)
    # 0.0.0.0 leads to this machine on Linux: reached only since its name is listed.
    assert isinstance(await world.call(defined={"url": url % "odd.internal", **plain}), Taken)
    assert isinstance(await world.call(defined={"url": url % "other.internal", **plain}), Refused)


async def test_system_with_its_own_authority_is_trusted_by_its_ca_file_only(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    carrier = ExternalCarrier(SystemClock())
    async with HttpServer(tls=context) as server:
        for ca_file, kind in (("ca.pem", Taken), ("other.pem", NotNow), (None, NotNow), ("missing.pem", NotNow)):
            url = f"https://localhost:{server.port}"
            definition = External(name="erp", folder=tmp_path, url=url, ca_file=ca_file)
            answer = await carrier.attempt(message(definition), definition)
            assert isinstance(answer, kind), answer
        await carrier.close()
        assert len(server.requests) == 1
