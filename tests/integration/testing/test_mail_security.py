"""TLS and AUTH of the mail server, right and wrong."""

import asyncio
import base64
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiosmtplib
import pytest
import trustme

from fieldpost.testing import MailServer
from fieldpost.testing.mail import Credentials
from support.smtp import talk_to

MESSAGE = b"Subject: Pump 3\r\n\r\nhot\r\n"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def served(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("mail.example").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusted(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@asynccontextmanager
async def connected(
    server: MailServer, context: ssl.SSLContext | None = None, **how: bool
) -> AsyncIterator[aiosmtplib.SMTP]:
    # The certificate names mail.example, so the client is given a socket to loopback and that name to expect.
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, (server.host, server.port))
    async with aiosmtplib.SMTP(
        hostname="mail.example", port=None, sock=sock, tls_context=context, timeout=10, **how
    ) as smtp:  # type: ignore[arg-type]
        yield smtp


async def test_starttls_is_offered_and_done(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    async with MailServer(tls=served) as server:
        async with connected(server, trusted, start_tls=True) as smtp:
            assert not smtp.supports_extension("STARTTLS")
            await smtp.sendmail("a@x.example", ["b@x.example"], MESSAGE)
        [connection] = server.connections
        assert (connection.is_tls, server.mail_count, server.seen["tls"]) == (True, 1, 1)


async def test_implicit_tls_begins_with_the_first_byte(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    async with MailServer(tls=served, tls_mode="implicit") as server:
        async with connected(server, trusted, use_tls=True) as smtp:
            assert not smtp.supports_extension("STARTTLS")
            await smtp.sendmail("a@x.example", ["b@x.example"], MESSAGE)
        assert (server.connections[0].is_tls, server.mail_count) == (True, 1)


async def test_plain_text_before_starttls_is_discarded(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    async with MailServer(tls=served) as server, talk_to(server.host, server.port) as talk:
        await talk.hello()
        # A command put behind STARTTLS in clear must not be taken for the client's own.
        talk.send(b"STARTTLS\r\nRSET\r\n")
        assert (await talk.reply())[:3] == "220"
        await talk.start_tls(trusted, "mail.example")
        assert (await talk("MAIL FROM:<a@x.example>"))[:3] == "503"
        assert "STARTTLS" not in await talk("EHLO c")
        assert (await talk("STARTTLS"))[:3] == "502"
        assert server.seen["rset"] == 0


@pytest.mark.parametrize("mode", ["starttls", "implicit"])
async def test_a_client_that_does_not_trust_the_certificate_is_noted(served: ssl.SSLContext, mode: str) -> None:
    async with MailServer(tls=served, tls_mode="implicit" if mode == "implicit" else "starttls") as server:
        with pytest.raises((aiosmtplib.SMTPException, ssl.SSLError)):
            async with connected(
                server, ssl.create_default_context(), use_tls=mode == "implicit", start_tls=mode == "starttls"
            ):
                pass
        await server.idle()
        [connection] = server.connections
        assert connection.tls_error is not None
        assert not connection.is_tls


async def test_starttls_can_be_stripped(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    async with MailServer(tls=served) as server:
        server.extensions.remove("STARTTLS")
        with pytest.raises(aiosmtplib.SMTPException):
            async with connected(server, trusted, start_tls=True):
                pass
        assert server.seen["starttls"] == 0


async def test_plain_text_can_be_injected_behind_the_220(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    async with MailServer(tls=served) as server, talk_to(server.host, server.port) as talk:
        server.on("starttls").inject(b"250-mail.example\r\n250 AUTH PLAIN\r\n")
        await talk.hello()
        talk.send(b"STARTTLS\r\n")
        assert (await talk.reader.readuntil(b"AUTH PLAIN\r\n")).startswith(b"220 2.0.0 Ready")
        await talk.start_tls(trusted, "mail.example")
        assert (await talk("EHLO c"))[:3] == "250"


@pytest.mark.parametrize("mode", ["starttls", "implicit"])
async def test_the_handshake_itself_can_hang_close_or_be_garbage(served: ssl.SSLContext, mode: str) -> None:
    async with MailServer(tls=served, tls_mode="implicit" if mode == "implicit" else "starttls") as server:
        server.on("tls").hang().times(1)
        server.on("tls").close().times(1)
        server.on("tls").raw(b"* OK IMAP4 ready\r\n").then_close().times(1)
        for expected in (None, b"", b"* OK IMAP4 ready\r\n"):
            async with talk_to(server.host, server.port) as talk:
                if mode == "starttls":
                    await talk.hello()
                    assert (await talk("STARTTLS"))[:3] == "220"
                if expected is None:
                    await server.saw("tls")
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(talk.reader.read(1), 0.02)
                else:
                    assert await talk.reader.read() == expected
            await server.idle()


async def test_starttls_can_be_refused(served: ssl.SSLContext) -> None:
    async with MailServer(tls=served) as server, talk_to(server.host, server.port) as talk:
        server.on("starttls").reply(454, "4.7.0 TLS not available")
        await talk.hello()
        assert (await talk("STARTTLS"))[:3] == "454"
        assert (await talk("MAIL FROM:<a@x.example>"))[:3] == "250"


def knows(credentials: Credentials) -> bool:
    return (credentials.user, credentials.secret) == ("pump", "s3cret")


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_password_is_accepted_or_rejected(mechanism: str) -> None:
    async with MailServer(auth=knows, auth_mechanisms=[mechanism], is_auth_required=True) as server:
        async with connected(server, start_tls=False) as smtp:
            with pytest.raises(aiosmtplib.SMTPResponseException) as refused:
                await smtp.sendmail("a@x.example", ["b@x.example"], MESSAGE)
            assert refused.value.code == 530
            with pytest.raises(aiosmtplib.SMTPAuthenticationError) as denied:
                await smtp.login("pump", "wrong")
            assert denied.value.code == 535
            await smtp.login("pump", "s3cret")
            await smtp.sendmail("a@x.example", ["b@x.example"], MESSAGE)
        assert (server.connections[0].user, server.mail_count) == ("pump", 1)


def xoauth2(user: str, token: str) -> str:
    return base64.b64encode(f"user={user}\x01auth=Bearer {token}\x01\x01".encode()).decode()


async def test_wrong_token_gets_a_challenge_before_the_535() -> None:
    given: list[Credentials] = []

    async def check(credentials: Credentials) -> bool:
        given.append(credentials)
        return credentials.secret == "fresh"

    async with MailServer(auth=check) as server, talk_to(server.host, server.port) as talk:
        assert "250 AUTH PLAIN LOGIN XOAUTH2" in await talk.hello()
        challenge = await talk(f"AUTH XOAUTH2 {xoauth2('pump', 'stale')}")
        assert challenge.startswith("334 ")
        assert b'"status": "401"' in base64.b64decode(challenge[4:])
        assert (await talk(""))[:3] == "535"
        assert await talk("AUTH XOAUTH2") == "334 "
        assert (await talk(xoauth2("pump", "fresh")))[:3] == "235"
        assert (await talk("AUTH PLAIN"))[:3] == "503"
    assert given == [Credentials("XOAUTH2", "pump", "stale"), Credentials("XOAUTH2", "pump", "fresh")]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (["AUTH PLAIN not-base64"], "501"),
        (["AUTH PLAIN YWJj"], "501"),
        (["AUTH PLAIN", "*"], "501"),
        (["AUTH LOGIN", "*"], "501"),
        (["AUTH XOAUTH2 YWJj"], "501"),
        (["AUTH XOAUTH2 ="], "334"),
        (["AUTH CRAM-MD5"], "504"),
        (["AUTH"], "504"),
    ],
)
async def test_invalid_auth_dialogue_is_rejected(said: list[str], code: str) -> None:
    async with MailServer(auth=knows) as server, talk_to(server.host, server.port) as talk:
        await talk.hello()
        replies = [await talk(line) for line in said]
        assert replies[-1][:3] == code
        assert server.connections[0].user is None


async def test_password_in_clear_is_rejected_if_tls_is_available(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    async with MailServer(tls=served, auth=knows) as server, talk_to(server.host, server.port) as talk:
        assert "AUTH" not in await talk.hello()
        assert (await talk("AUTH PLAIN AHB1bXAAczNjcmV0"))[:3] == "502"
        await talk("STARTTLS")
        await talk.start_tls(trusted, "mail.example")
        assert "AUTH PLAIN" in await talk("EHLO c")
        assert (await talk("AUTH PLAIN AHB1bXAAczNjcmV0"))[:3] == "235"


@pytest.mark.parametrize(("code", "let_in"), [(454, False), (535, False), (235, True)])
async def test_auth_can_be_answered_by_a_rule(code: int, let_in: bool) -> None:
    async with MailServer(auth=lambda credentials: False, is_auth_required=True) as server:
        server.on("auth").reply(code)
        async with talk_to(server.host, server.port) as talk:
            await talk.hello()
            assert (await talk("AUTH PLAIN AHB1bXAAczNjcmV0"))[:3] == str(code)
            assert (await talk("MAIL FROM:<a@x.example>"))[:3] == ("250" if let_in else "530")


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
def test_implicit_tls_on_uvloop_too(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """That loop reads the client's hello before anybody asks for it."""
    import uvloop

    def hear_banner(port: int) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            trusted.wrap_socket(plain, server_hostname="mail.example") as secured,
        ):
            return secured.recv(100)

    async def serve() -> list[bytes]:
        async with MailServer(tls=served, tls_mode="implicit") as server:
            return await asyncio.gather(*(asyncio.to_thread(hear_banner, server.port) for _ in range(3)))

    assert uvloop.run(serve()) == [b"220 mail.example ESMTP\r\n"] * 3
