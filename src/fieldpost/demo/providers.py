"""The demo's providers: Teams, Slack, Telegram and a GSM router, each on a port of loopback with TLS.

They are the fake providers of `fieldpost.testing`, which enforce the real limits. In each run Slack fails twice and
Telegram asks to wait once, so that the console has a retry and a pause to show. Their certificate is made at each
start; central's process trusts it, and nothing else, by SSL_CERT_FILE.
"""

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fieldpost.clock import Clock
from fieldpost.core import ids
from fieldpost.demo.chats import ChatKind, ReceivedChat
from fieldpost.demo.scenario import BOT_TOKEN, CHAT_LISTS, ROUTER_LOGIN, SLACK_FAILURES
from fieldpost.testing.providers import FakeSlack, FakeSmsRouter, FakeTeams, FakeTelegram, ProviderCopy, ProviderServer

CERTIFICATE_FILE = "providers.pem"
KEY_FILE = "providers.key"
REQUESTS_KEPT = 10
_LIFE = timedelta(days=3650)
_QUERY = "username={username}&password={password}&number={number}&text={text}"


@dataclass(frozen=True, slots=True)
class ChatSetup:
    """The channel and the list of a provider, as this run's ports require them."""

    settings: dict[str, object]
    channel_secrets: dict[str, str]
    target_secret: str | None
    """The hook URL of the list's only target."""


class Providers:
    """The providers of one run. `take` gets each message before its sender gets an answer."""

    def __init__(self, folder: Path, clock: Clock, pause_s: int, take: Callable[[ReceivedChat], None]) -> None:
        self._folder = folder
        self._clock = clock
        self._pause_s = pause_s
        self._take = take

    @property
    def certificate(self) -> Path:
        return self._folder / CERTIFICATE_FILE

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[dict[ChatKind, ChatSetup]]:
        """Serve all providers; yields how to reach each of them."""
        _make_certificate(self.certificate, self._folder / KEY_FILE, self._clock.now())
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate, self._folder / KEY_FILE)

        def options(kind: ChatKind) -> dict[str, Any]:
            return {"tls": tls, "kept_max": REQUESTS_KEPT, "on_copy": partial(self._caught, kind)}

        teams, slack = FakeTeams(**options(ChatKind.TEAMS)), FakeSlack(**options(ChatKind.SLACK))
        telegram = FakeTelegram(BOT_TOKEN, **options(ChatKind.TELEGRAM))
        router = FakeSmsRouter(*ROUTER_LOGIN, **options(ChatKind.SMS))
        slack.on().answer(503, "maintenance").times(SLACK_FAILURES)
        wait = f'"parameters":{{"retry_after":{self._pause_s}}}'
        telegram.on("POST").answer(
            429,
            f'{{"ok":false,"error_code":429,"description":"Too Many Requests: retry after {self._pause_s}",{wait}}}',
        ).times(1)
        async with AsyncExitStack() as stack:
            servers: tuple[ProviderServer, ...] = (teams, slack, telegram, router)
            for server in servers:
                await stack.enter_async_context(server)
            login = dict(zip(("username", "password"), ROUTER_LOGIN, strict=True))
            answers = "OK=delivered, ERROR=retry, TIMEOUT=retry, WRONG_NUMBER=failed"
            sms: dict[str, object] = {
                "dialect": "http",
                "url": f"{router.url}/cgi-bin/sms_send?{_QUERY}",
                "username": login["username"],
                "method": "GET",
                "number_format": "00",
                "answers": answers,
            }
            yield {
                ChatKind.TEAMS: ChatSetup({}, {}, teams.hook(CHAT_LISTS[ChatKind.TEAMS].target)),
                ChatKind.SLACK: ChatSetup({}, {}, slack.hook(CHAT_LISTS[ChatKind.SLACK].target)),
                ChatKind.TELEGRAM: ChatSetup({"url": telegram.url}, {"token": BOT_TOKEN}, None),
                ChatKind.SMS: ChatSetup(sms, {"password": login["password"]}, None),
            }

    def _caught(self, kind: ChatKind, copy: ProviderCopy) -> None:
        found = copy.notification_id if ids.is_id(copy.notification_id) else ""
        self._take(ReceivedChat(0, kind, copy.target, self._clock.now(), found, copy.text, copy.message))


def _make_certificate(certificate: Path, key_file: Path, now: datetime) -> None:
    """A self-signed certificate for 127.0.0.1, which is also the authority to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "providers of the Fieldpost demo")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_file.unlink(missing_ok=True)
    with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
