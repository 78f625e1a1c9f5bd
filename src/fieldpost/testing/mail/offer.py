"""Extensions, authentication and limits that the server offers."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fieldpost.clock import Clock
from fieldpost.testing.mail.message import ReceivedMail

EXTENSIONS = ("PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "SIZE", "STARTTLS", "AUTH")
MECHANISMS = ("PLAIN", "LOGIN", "XOAUTH2")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials that a client sent with AUTH."""

    mechanism: str
    user: str
    secret: str
    """The password, or the token with XOAUTH2."""


AuthCheck = Callable[[Credentials], bool | Awaitable[bool]]
MailHook = Callable[[ReceivedMail], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that protect the server from a faulty client."""

    connections: int = 1000
    """Open connections; further ones get 421."""
    message_bytes: int = 10 * 1024 * 1024
    recipients: int = 1000
    """Recipients per transaction; further ones get 452."""
    mails_kept: int = 20_000
    connections_kept: int = 2_000
    transcript_lines: int = 2_000
    """Transcript lines kept per connection."""
    tls_handshake_s: float = 30


@dataclass(slots=True)
class Offer:
    """The server's settings; a change of `extensions` applies from the next EHLO."""

    clock: Clock
    hostname: str
    limits: Limits
    extensions: list[str] = field(default_factory=lambda: list(EXTENSIONS))
    drops_pipelined: bool = False
    starttls: ssl.SSLContext | None = None
    implicit_tls: ssl.SSLContext | None = None
    auth: AuthCheck | None = None
    auth_mechanisms: tuple[str, ...] = MECHANISMS
    is_auth_required: bool = False
    on_mail: MailHook | None = None
    keep_raw: bool = True

    def offers_auth(self, is_tls: bool) -> bool:
        """Whether AUTH is offered; with STARTTLS only over TLS."""
        return self.auth is not None and "AUTH" in self.extensions and (is_tls or self.starttls is None)

    def ehlo_lines(self, is_tls: bool) -> str:
        lines = [self.hostname]
        for extension in self.extensions:
            match extension:
                case "SIZE":
                    lines.append(f"SIZE {self.limits.message_bytes}")
                case "STARTTLS":
                    if self.starttls is not None and not is_tls:
                        lines.append("STARTTLS")
                case "AUTH":
                    if self.offers_auth(is_tls):
                        lines.append(f"AUTH {' '.join(self.auth_mechanisms)}")
                case other:
                    lines.append(other)
        return "\n".join(lines)
