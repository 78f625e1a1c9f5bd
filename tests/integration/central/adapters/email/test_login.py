"""Logging in at the mail server: by password or token, never in clear, and never shown."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trustme
from aiohttp import web
from structlog.testing import capture_logs

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, Held, PermanentFailure
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.mail import Credentials
from support.mailing import envelope
from support.token_server import TokenServer, token_server

PASSWORD = "canary-9f3k§ü"
BASIC: dict[str, Any] = {"auth": "basic", "username": "alerts@plant.example", "password": Secret(PASSWORD)}
CLIENT_SECRET = "canary-client-7731"


def is_right(given: Credentials) -> bool:
    return given.user == "alerts@plant.example" and given.secret == PASSWORD


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with token_server() as server:
        yield server


def oauth2(tokens: TokenServer) -> dict[str, Any]:
    return {
        "auth": "oauth2",
        "username": "alerts@plant.example",
        "oauth_token_url": tokens.url,
        "oauth_client_id": "fieldpost",
        "oauth_client_secret": Secret(CLIENT_SECRET),
        "oauth_scope": "https://mail.example/.default offline",
    }


@pytest.mark.parametrize("mechanisms", [("PLAIN",), ("LOGIN",), ("XOAUTH2", "LOGIN", "PLAIN")])
async def test_basic_login_uses_a_mechanism_that_the_server_offers(
    adapter: EmailAdapter, mechanisms: tuple[str, ...]
) -> None:
    async with MailServer(auth=is_right, auth_mechanisms=mechanisms, is_auth_required=True) as server:
        assert isinstance(await adapter.deliver(envelope(server, settings=BASIC)), Delivered)
        assert server.connections[0].user == "alerts@plant.example"
        await adapter.close()


@pytest.mark.fault(45)
async def test_wrong_password_holds_and_is_never_shown(adapter: EmailAdapter) -> None:
    async with MailServer(auth=lambda _: False, auth_mechanisms=["PLAIN"]) as server:
        outcome = await adapter.deliver(envelope(server, settings=BASIC))
        assert isinstance(outcome, Held)
        assert (outcome.phase, outcome.reply) == ("auth", "535 5.7.8 Authentication credentials invalid")
        assert server.seen["mail"] == 0
        await adapter.close()


async def test_server_without_a_supported_mechanism_holds(adapter: EmailAdapter) -> None:
    async with MailServer(auth=is_right, auth_mechanisms=["XOAUTH2"]) as server:
        outcome = await adapter.deliver(envelope(server, settings=BASIC))
        assert isinstance(outcome, Held)
        assert "requires AUTH PLAIN or LOGIN, but the server offers XOAUTH2" in outcome.error
        await adapter.close()


@pytest.mark.req("ADP-13")
@pytest.mark.threat(23)
@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_credentials_echoed_by_the_server_are_hidden(adapter: EmailAdapter, mechanism: str) -> None:
    import base64

    plain = base64.b64encode(f"\0alerts@plant.example\0{PASSWORD}".encode()).decode()
    seen: list[str] = []
    async with MailServer(auth=lambda _: False, auth_mechanisms=[mechanism]) as server:
        server.on("auth").reply(535, f"5.7.8 not {PASSWORD}, as in {plain}")
        with capture_logs() as lines:
            outcome = await adapter.deliver(envelope(server, settings=BASIC, transcript=seen.append))
        assert isinstance(outcome, Held)
        assert "***" in outcome.error
        shown = f"{outcome!r} {lines!r} {seen!r}"
        assert PASSWORD not in shown
        assert plain[20:] not in shown
        await adapter.close()


@pytest.mark.threat(20)
@pytest.mark.parametrize("host", ["10.0.0.5", "mail.example"])
def test_credentials_without_tls_to_another_machine_are_rejected_on_save(host: str) -> None:
    settings = {"host": host, "tls": "none", "from_address": "alerts@plant.example"} | BASIC
    with pytest.raises(InvalidInput, match="credentials would be sent in clear") as caught:
        EmailAdapter().check_settings(settings)
    assert caught.value.field == "auth"
    for local in ("127.0.0.1", "localhost", "::1"):
        assert EmailAdapter().check_settings(settings | {"host": local})["auth"] == "basic"
    assert EmailAdapter().check_settings(settings | {"tls": "starttls"})["auth"] == "basic"


@pytest.mark.threat(20)
@pytest.mark.fault(43)
@pytest.mark.parametrize("how", ["stripped", "refused", "injected"])
async def test_no_credentials_are_sent_if_tls_is_not_available(how: str) -> None:
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    adapter = EmailAdapter(tls_context=trusting)
    async with MailServer(tls=served, auth=is_right) as server:
        if how == "stripped":
            server.extensions.remove("STARTTLS")
        elif how == "refused":
            server.on("starttls").reply(454, "4.7.0 not now")
        else:
            # Somebody in between offers AUTH in clear behind the 220.
            server.on("starttls").inject(b"250-evil.example\r\n250 AUTH PLAIN\r\n")
        outcome = await adapter.deliver(envelope(server, settings=BASIC | {"tls": "starttls"}))
        await adapter.close()
        await server.idle()
        [connection] = server.connections
        in_clear = str(connection).partition("STARTTLS")[0] if connection.is_tls else str(connection)
        assert "AUTH PLAIN" not in in_clear
        assert isinstance(outcome, Delivered if connection.is_tls else Held)
        assert how == "injected" or not connection.is_tls


@pytest.mark.parametrize("missing", ["username", "password"])
def test_basic_login_without_its_fields_is_rejected(missing: str) -> None:
    settings = {"host": "mail.example", "tls": "starttls", "from_address": "a@plant.example"} | BASIC
    del settings[missing]
    with pytest.raises(InvalidInput, match=f"{missing} is required if auth is basic") as caught:
        EmailAdapter().check_settings(settings)
    assert caught.value.field == missing


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("auth", "digest"),
        ("auth", True),
        ("username", "a\x01b"),
        ("username", "a b"),
        ("username", "x" * 600),
        ("password", "nul\x00"),
        ("password", 5),
        ("oauth_token_url", "http://login.example/token"),
        ("oauth_token_url", "https://user:pw@login.example/"),
        ("oauth_token_url", "ftp://login.example/"),
        ("oauth_client_id", "a\r\nb"),
        ("max_connections", 0),
        ("max_connections", 5000),
    ],
)
def test_invalid_login_setting_is_rejected_naming_it(field: str, value: object) -> None:
    settings = {"host": "mail.example", "tls": "starttls", "from_address": "a@plant.example", **BASIC, field: value}
    with pytest.raises(InvalidInput) as caught:
        EmailAdapter().check_settings(settings)
    assert caught.value.field == field
    assert PASSWORD not in str(caught.value)


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("ADP-07")
async def test_oauth2_logs_in_with_a_token_fetched_once_for_all(adapter: EmailAdapter, tokens: TokenServer) -> None:
    async with MailServer(auth=lambda given: given.secret in tokens.given, auth_mechanisms=["XOAUTH2"]) as server:
        many = (adapter.deliver(envelope(server, settings=oauth2(tokens))) for _ in range(30))
        outcomes = await asyncio.gather(*many)
        assert {type(outcome) for outcome in outcomes} == {Delivered}
        assert tokens.forms == [
            {
                "grant_type": "client_credentials",
                "client_id": "fieldpost",
                "client_secret": CLIENT_SECRET,
                "scope": "https://mail.example/.default offline",
            }
        ]
        assert "AUTH XOAUTH2" in server.connections[0].commands[1]
        await adapter.close()


@pytest.mark.req("ADP-07")
@pytest.mark.fault(45)
async def test_rejected_token_is_fetched_again_once_and_then_the_mail_is_sent(
    adapter: EmailAdapter, tokens: TokenServer
) -> None:
    accepted: set[str] = set()
    async with MailServer(auth=lambda given: given.secret in accepted, auth_mechanisms=["XOAUTH2"]) as server:
        accepted.add("token-2-of-many")  # the first was called back
        outcome = await adapter.deliver(envelope(server, settings=oauth2(tokens)))
        assert isinstance(outcome, Delivered)
        assert len(tokens.forms) == 2
        # The reason came as a challenge, which was answered by an empty line before the 535.
        assert server.connections[0].commands[2] == ""
        await adapter.close()


@pytest.mark.fault(45)
async def test_token_that_is_never_accepted_holds_after_one_refresh(adapter: EmailAdapter, tokens: TokenServer) -> None:
    async with MailServer(auth=lambda _: False, auth_mechanisms=["XOAUTH2"]) as server:
        outcome = await adapter.deliver(envelope(server, settings=oauth2(tokens)))
        assert isinstance(outcome, Held)
        assert (outcome.phase, outcome.reply) == ("auth", "535 5.7.8 Authentication credentials invalid")
        assert (len(tokens.forms), server.seen["auth"]) == (2, 2)
        await adapter.close()


async def refuse(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "invalid_client", "error_description": f"not {CLIENT_SECRET}"}, status=401)


async def fail(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="Traceback: " + CLIENT_SECRET)


async def nonsense(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>welcome</html>")


async def no_token(_: web.Request) -> web.StreamResponse:
    return web.json_response({"token_type": "Bearer"})


async def bad_token(_: web.Request) -> web.StreamResponse:
    return web.json_response({"access_token": "a\r\nMAIL FROM:<x@y>", "token_type": "Bearer"})


async def elsewhere(_: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


@pytest.mark.req("ADP-12")
@pytest.mark.dec("DEC-10")
@pytest.mark.fault(45)
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (refuse, "401 (invalid_client)"),
        (fail, "the answer was 500"),
        (nonsense, "no valid access_token"),
        (no_token, "no valid access_token"),
        (bad_token, "no valid access_token"),
        (elsewhere, "the answer was 302"),
    ],
)
async def test_unavailable_token_holds_and_reveals_no_secret(
    adapter: EmailAdapter, tokens: TokenServer, how: Any, reason: str
) -> None:
    tokens.answer = how
    async with MailServer(auth=is_right) as server:
        with capture_logs() as lines:
            outcome = await adapter.deliver(envelope(server, settings=oauth2(tokens)))
        assert isinstance(outcome, Held)
        assert outcome.phase == "token"
        assert reason in outcome.error
        assert CLIENT_SECRET not in f"{outcome!r} {lines!r}"
        assert server.connections == []
        await adapter.close()


@pytest.mark.fault(45)
async def test_a_token_endpoint_that_does_not_answer_holds_at_the_deadline(tokens: TokenServer) -> None:
    tokens.let_go.clear()
    adapter = EmailAdapter(deadline_s=0.5)
    async with MailServer(auth=is_right) as server:
        outcome = await adapter.deliver(envelope(server, settings=oauth2(tokens)))
        assert isinstance(outcome, Held)
        assert outcome.phase == "token"
        tokens.let_go.set()
        await adapter.close()


async def test_token_is_renewed_before_it_expires_and_used_until_then_if_that_fails(tokens: TokenServer) -> None:
    clock = ManualClock()
    adapter = EmailAdapter(clock=clock, idle_s=0)
    tokens.life_s = 100
    async with MailServer(auth=lambda given: given.secret in tokens.given, auth_mechanisms=["XOAUTH2"]) as server:

        async def deliver() -> object:
            outcome = await adapter.deliver(envelope(server, settings=oauth2(tokens)))
            await server.idle()
            return type(outcome)

        assert await deliver() is Delivered
        clock.advance(79)
        assert (await deliver(), len(tokens.forms)) == (Delivered, 1)
        clock.advance(2)
        assert (await deliver(), len(tokens.forms)) == (Delivered, 2)
        clock.advance(90)
        tokens.answer = fail
        assert (await deliver(), len(tokens.forms)) == (Delivered, 3)
        clock.advance(11)
        assert (await deliver(), len(tokens.forms)) == (Held, 4)
        await adapter.close()


@pytest.mark.threat(23)
async def test_transcript_has_the_conversation_without_secrets(adapter: EmailAdapter, tokens: TokenServer) -> None:
    seen: list[str] = []
    async with MailServer(auth=lambda _: True, hostname="mail.plant.example") as server:
        assert isinstance(
            await adapter.deliver(envelope(server, settings=oauth2(tokens), transcript=seen.append)), Delivered
        )
        await adapter.close()
    told = "\n".join(seen)
    for line in (
        "< 220 mail.plant.example ESMTP",
        "> AUTH XOAUTH2 ***",
        "< 235",
        "> MAIL FROM:<",
        "> RCPT TO:<",
        "> QUIT",
    ):
        assert line in told
    assert tokens.given[0] not in told
    assert CLIENT_SECRET not in told


@pytest.mark.req("ADP-11")
async def test_stored_settings_that_would_send_credentials_in_clear_are_permanent(adapter: EmailAdapter) -> None:
    outcome = await adapter.deliver(envelope(None, settings=BASIC | {"host": "10.0.0.5"}))
    assert isinstance(outcome, PermanentFailure)
    assert "auth must be none if tls is none" in outcome.error
