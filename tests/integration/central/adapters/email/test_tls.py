"""TLS to the mail server: required where the channel says so, and never pretended."""

import asyncio
import ssl
import sys
import warnings
from datetime import UTC, datetime
from typing import Literal

import pytest
import trustme

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome
from fieldpost.testing import MailServer
from fieldpost.testing.mail import MailServerThread
from support.mailing import envelope

Mode = Literal["starttls", "implicit"]
MODES: list[Mode] = ["starttls", "implicit"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def adapter(authority: trustme.CA) -> EmailAdapter:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return EmailAdapter(tls_context=context)


def served(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
@pytest.mark.parametrize("mode", ["none", *MODES])
def test_tls_modes_work_on_uvloop(
    authority: trustme.CA, adapter: EmailAdapter, mode: Literal["none", "starttls", "implicit"]
) -> None:
    import uvloop

    async def send(server: MailServerThread) -> list[Outcome]:
        settings = {"tls": mode, "host": server.host, "port": server.port}
        bodies = ("short\n", "Pumpe 3 läuft heiß\n" * 10_000)
        outcomes = [await adapter.deliver(envelope(None, settings=settings, body=body)) for body in bodies]
        await adapter.close()
        return outcomes

    tls = None if mode == "none" else served(authority.issue_cert("127.0.0.1"))
    with MailServerThread(tls=tls, tls_mode="implicit" if mode == "implicit" else "starttls") as server:
        assert [type(outcome) for outcome in uvloop.run(send(server))] == [Delivered, Delivered]
        server.idle()
        assert [len(mail.body) for mail in server.mails] == [6, 190_000]
        assert {connection.is_tls for connection in server.connections} == {mode != "none"}


@pytest.mark.parametrize("mode", MODES)
async def test_mail_is_sent_over_tls(authority: trustme.CA, adapter: EmailAdapter, mode: Mode) -> None:
    async with MailServer(tls=served(authority.issue_cert("127.0.0.1")), tls_mode=mode) as server:
        assert isinstance(await adapter.deliver(envelope(server, settings={"tls": mode})), Delivered)
        await adapter.close()
        await server.idle()
        [connection] = server.connections
        assert (connection.is_tls, connection.tls_error) == (True, None)
        assert server.seen["ehlo"] == (2 if mode == "starttls" else 1)


def expired(authority: trustme.CA) -> ssl.SSLContext:
    return served(authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)))


def wrong_name(authority: trustme.CA) -> ssl.SSLContext:
    return served(authority.issue_cert("mail.other.example"))


def unknown_authority(authority: trustme.CA) -> ssl.SSLContext:
    return served(trustme.CA().issue_cert("127.0.0.1"))


def self_signed(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = trustme.CA()
    with own.private_key_pem.tempfile() as key, own.cert_pem.tempfile() as certificate:
        context.load_cert_chain(certificate, key)
    return context


def tls_1_0(authority: trustme.CA) -> ssl.SSLContext:
    context = served(authority.issue_cert("127.0.0.1"))
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    return context


@pytest.mark.fault(44)
@pytest.mark.threat(20)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (expired, "certificate has expired"),
        (wrong_name, "IP address mismatch"),
        (unknown_authority, "unable to get local issuer certificate"),
        (self_signed, "self-signed certificate"),
        (tls_1_0, "TLS 1.2 or newer"),
    ],
)
async def test_server_with_invalid_tls_holds_with_the_reason(
    authority: trustme.CA, adapter: EmailAdapter, mode: Mode, fault, reason: str
) -> None:
    async with MailServer(tls=fault(authority), tls_mode=mode) as server:
        outcome = await adapter.deliver(envelope(server, settings={"tls": mode}))
        assert isinstance(outcome, Held)
        assert reason in outcome.error
        assert outcome.phase == ("starttls" if mode == "starttls" else "connect")
        await server.idle()
        assert server.seen["mail"] == 0


# The start of a ServerHello of TLS 1.0, as a server sends it that knows nothing newer.
OLD_HELLO = bytes.fromhex("160301002a020000260301" + "11" * 32 + "00002f00")
# An alert that ends the handshake: protocol_version.
OLD_ALERT = bytes.fromhex("15030100020246")


@pytest.mark.fault(44)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("said", [OLD_HELLO, OLD_ALERT], ids=["hello", "alert"])
async def test_server_with_an_old_tls_version_has_its_own_code(adapter: EmailAdapter, mode: Mode, said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if mode == "starttls":
            writer.write(b"220 ready\r\n")
            await reader.readline()
            writer.write(b"250-mail.example\r\n250 STARTTLS\r\n")
            await reader.readline()
            writer.write(b"220 go on\r\n")
        await reader.read(1000)
        writer.write(said)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        settings = {"tls": mode, "port": listener.sockets[0].getsockname()[1]}
        outcome = await adapter.deliver(envelope(None, settings=settings))
        assert isinstance(outcome, Held)
        assert "TLS 1.2 or newer is required" in outcome.error
        assert outcome.phase == ("starttls" if mode == "starttls" else "connect")


def test_no_context_allows_less_than_tls_1_2() -> None:
    given = ssl.create_default_context()
    given.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    assert EmailAdapter(tls_context=given)._tls_context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert EmailAdapter()._tls_context.minimum_version >= ssl.TLSVersion.TLSv1_2
    given.minimum_version = ssl.TLSVersion.TLSv1_3
    assert EmailAdapter(tls_context=given)._tls_context.minimum_version is ssl.TLSVersion.TLSv1_3


async def test_default_context_uses_the_trust_store_of_the_machine(authority: trustme.CA) -> None:
    adapter = EmailAdapter()
    async with MailServer(tls=served(authority.issue_cert("127.0.0.1"))) as server:
        outcome = await adapter.deliver(envelope(server, settings={"tls": "starttls"}))
        assert isinstance(outcome, Held)
        assert "certificate verify failed" in outcome.error
        await server.idle()


@pytest.mark.fault(43)
@pytest.mark.threat(20)
@pytest.mark.parametrize("how", ["not offered", "refused", "closed", "answered by nonsense"])
async def test_unavailable_starttls_holds_and_nothing_is_sent_in_clear(
    authority: trustme.CA, adapter: EmailAdapter, how: str
) -> None:
    async with MailServer(tls=served(authority.issue_cert("127.0.0.1"))) as server:
        match how:
            case "not offered":
                server.extensions.remove("STARTTLS")
            case "refused":
                server.on("starttls").reply(454, "4.7.0 not now")
            case "closed":
                server.on("starttls").close()
            case _:
                server.on("tls").raw(b"* OK IMAP4 ready\r\n").then_close()
        outcome = await adapter.deliver(envelope(server, settings={"tls": "starttls"}))
        assert isinstance(outcome, Held)
        assert outcome.phase == "starttls"
        await adapter.close()
        await server.idle()
        assert server.seen["mail"] == 0


@pytest.mark.fault(43)
async def test_plain_text_injected_after_the_220_is_ignored(authority: trustme.CA, adapter: EmailAdapter) -> None:
    async with MailServer(tls=served(authority.issue_cert("127.0.0.1"))) as server:
        server.on("starttls").inject(b"250-evil.example\r\n250 SIZE 1\r\n")
        outcome = await adapter.deliver(envelope(server, settings={"tls": "starttls"}))
        assert isinstance(outcome, Delivered | Held)
        await adapter.close()
        await server.idle()
        assert server.connections[0].is_tls or server.seen["mail"] == 0
        assert server.mail_count == isinstance(outcome, Delivered)


async def test_implicit_tls_to_a_plain_text_server_holds(adapter: EmailAdapter) -> None:
    async with MailServer() as server:
        outcome = await adapter.deliver(
            envelope(server, settings={"tls": "implicit", "connect_timeout_s": 1, "command_timeout_s": 1})
        )
        assert isinstance(outcome, Held)
        assert outcome.phase == "connect"
        await server.idle()
        assert server.seen["mail"] == 0


async def test_tls_none_stays_in_clear_even_if_starttls_is_offered(authority: trustme.CA) -> None:
    adapter = EmailAdapter()
    async with MailServer(tls=served(authority.issue_cert("127.0.0.1"))) as server:
        assert isinstance(await adapter.deliver(envelope(server)), Delivered)
        assert server.seen["starttls"] == 0
        await adapter.close()
