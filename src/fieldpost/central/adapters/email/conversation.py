"""One connection to a mail server, over aiosmtplib's protocol.

The client class of that library raises the same error for a connection lost after MAIL, after DATA and after the final
dot, although only the last may have delivered something. So this module sends each command separately and returns every
result as a `SmtpReply`, including a missing reply. Only cancellation is raised.

Before the first mail `phase` is the last command sent; `SmtpTransaction` sends the mail.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiosmtplib.errors import SMTPException, SMTPResponseException, SMTPServerDisconnected, SMTPTimeoutError
from aiosmtplib.esmtp import parse_esmtp_extensions
from aiosmtplib.response import SMTPResponse

from fieldpost.central.adapters.email.classify import ReplyVerdict, SmtpPhase, SmtpReply, classify, is_over
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.central.adapters.email.wire import SmtpWire
from fieldpost.clock import Clock
from fieldpost.core.secret import Scrubber
from fieldpost.outbound.connect import connect
from fieldpost.outbound.guard import AddressGuard, Blocked
from fieldpost.system_error import reason_of

QUIT_TIMEOUT_S = 5.0
GREETING = 220
NO_GREETING = "no SMTP greeting"

Transcript = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AttemptDeadline:
    """`until` is a monotonic time of the clock."""

    clock: Clock
    until: float

    def at_most(self, timeout_s: float) -> float:
        """The timeout, or the remaining time if that is shorter."""
        return min(timeout_s, max(0.0, self.until - self.clock.monotonic()))


class SmtpConversation:
    """The SMTP dialogue over one connection."""

    def __init__(self, settings: EmailSettings, tls_context: ssl.SSLContext, guard: AddressGuard) -> None:
        self.settings = settings
        self.phase = SmtpPhase.CONNECT
        self.is_over = False
        """The conversation has ended; no more replies will arrive."""
        self.has_timed_out = False
        """It ended because a reply did not arrive in time."""
        self.extensions: dict[str, str] = {}
        """The server's extensions, by lower-case keyword."""
        self.is_tls = False
        self.is_in_transaction = False
        """MAIL was sent, but neither an accepted message nor RSET since."""
        self.is_reused = False
        self.transcript: Transcript | None = None
        self.scrub = Scrubber()
        self.idle_since = 0.0
        self.dot: asyncio.Future[None] | None = None
        """Done when the message in flight has its reply; replies to commands sent meanwhile follow it."""
        self.dot_s: float | None = None
        """How long the last message waited for its reply."""
        self.is_doomed = False
        """The attempt that took over the connection is gone: close it when the message in flight has its reply."""
        self.wire = SmtpWire()
        self._tls_context = tls_context
        self._guard = guard

    # -- before the first mail -----------------------------------------------------------------------------------------

    async def greet(self, deadline: AttemptDeadline) -> SmtpReply:
        """Connect, send EHLO and switch to TLS if configured; returns the last reply or the first failure."""
        reply = await self._connect(deadline)
        if not self.may_go_on(reply):
            return reply
        reply = await self._ehlo(deadline)
        if self.settings.tls != "starttls" or not self.may_go_on(reply):
            return reply
        reply = await self._start_tls(deadline)
        if not self.may_go_on(reply):
            return reply
        return await self._ehlo(deadline)

    async def _connect(self, deadline: AttemptDeadline) -> SmtpReply:
        host, port = self.settings.host, self.settings.port
        is_tls = self.settings.tls == "implicit"
        timeout_s = deadline.at_most(self.settings.connect_timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                connected = await connect(await self._guard.addresses(host, port), port)
                await asyncio.get_running_loop().create_connection(
                    lambda: self.wire,
                    sock=connected,
                    ssl=self._tls_context if is_tls else None,
                    server_hostname=host if is_tls else None,
                )
        except Blocked as blocked:
            return self.no_reply(f"no connection to {host} port {port}: {blocked.reason}")
        except TimeoutError:
            return self.no_reply(f"no connection to {host} port {port} within {timeout_s:g} s")
        except OSError as error:
            reason = _tls_reason(error) or (_BROKEN_OFF if is_tls and not str(error) else reason_of(error))
            return self.no_reply(f"no connection to {host} port {port}: {reason}")
        self.is_tls = is_tls
        self.note(f"* connected to {self.peer} port {port}{' over TLS' if is_tls else ''}")
        return await self.read_reply(SmtpPhase.CONNECT, self.settings.command_timeout_s, deadline)

    async def _ehlo(self, deadline: AttemptDeadline) -> SmtpReply:
        reply = await self.command(SmtpPhase.EHLO, f"EHLO {self._own_name()}".encode("ascii"), deadline)
        if reply.code // 100 == 5 and self.settings.tls != "starttls" and self.settings.auth == "none":
            # An old server; RFC 5321 asks for HELO then. Without extensions there is neither STARTTLS nor AUTH.
            self.extensions = {}
            return await self.command(SmtpPhase.EHLO, f"HELO {self._own_name()}".encode("ascii"), deadline)
        self.extensions = parse_esmtp_extensions(reply.text)[0] if reply.code == 250 else {}
        return reply

    async def _start_tls(self, deadline: AttemptDeadline) -> SmtpReply:
        self.phase = SmtpPhase.STARTTLS
        if "starttls" not in self.extensions:
            # An attacker may have removed the offer. Never fall back to clear text.
            return SmtpReply(0, "the server does not offer STARTTLS, but the channel requires it")
        timeout_s = deadline.at_most(self.settings.command_timeout_s)
        self.note("> STARTTLS")
        answer = self.wire.start_tls(self._tls_context, server_hostname=self.settings.host, timeout=timeout_s)
        reply = await self._await_reply(answer, timeout_s)
        self.is_tls = reply.code == 220
        return reply

    def _own_name(self) -> str:
        """This machine's full host name, else its address; a DNS lookup could block."""
        name = socket.gethostname()
        if _FULL_NAME.fullmatch(name):
            return name
        if self.wire.transport is None:
            return "localhost"
        address = self.wire.transport.get_extra_info("sockname")[0].partition("%")[0]
        return f"[IPv6:{address}]" if ":" in address else f"[{address}]"

    @property
    def peer(self) -> str:
        """The address of the server; empty if the connection is gone."""
        name = self.wire.transport.get_extra_info("peername") if self.wire.transport is not None else None
        return str(name[0]) if name else ""

    # -- the end -------------------------------------------------------------------------------------------------------

    async def quit(self) -> None:
        """Send QUIT; failures are ignored."""
        timeout_s = min(QUIT_TIMEOUT_S, self.settings.command_timeout_s)
        self.note("> QUIT")
        try:
            await self.wire.execute_command(b"QUIT", timeout=timeout_s)
        except (SMTPException, OSError):
            self.hang_up()
        except asyncio.CancelledError:
            self.hang_up()
            raise
        else:
            if self.wire.transport is not None:
                self.wire.transport.close()

    def hang_up(self) -> None:
        """Close at once without sending buffered data."""
        self.is_over = True
        self.wire.hang_up()

    # -- commands and replies ------------------------------------------------------------------------------------------

    async def command(
        self, phase: SmtpPhase, line: bytes, deadline: AttemptDeadline, *, shown: str | None = None
    ) -> SmtpReply:
        """Send one command and return its reply."""
        if not self.send([line], shown=shown):
            self.phase = phase
            return self.no_reply(CLOSED)
        return await self.read_reply(phase, self.settings.command_timeout_s, deadline)

    def send(self, lines: list[bytes], *, shown: str | None = None) -> bool:
        """Send commands in one write; returns False if the connection is gone."""
        if any(_CONTROL.search(line) for line in lines):
            raise ValueError("a command must not contain control characters")
        if self.transcript is not None:
            for line in lines:
                self.note(f"> {line.decode('utf-8', 'replace') if shown is None else shown}")
        try:
            self.wire.write(b"\r\n".join(lines) + b"\r\n")
        except (SMTPServerDisconnected, OSError):
            return False
        return True

    async def read_reply(self, phase: SmtpPhase, timeout_s: float, deadline: AttemptDeadline) -> SmtpReply:
        """Read the next reply, which belongs to the command of this phase."""
        self.phase = phase
        timeout_s = deadline.at_most(timeout_s)
        return await self._await_reply(self.wire.read_response(timeout_s), timeout_s)

    async def _await_reply(self, answer: Awaitable[SMTPResponse], timeout_s: float) -> SmtpReply:
        try:
            response = await answer
        except SMTPTimeoutError:
            self.has_timed_out = True
            return self.no_reply(f"no answer within {timeout_s:g} s")
        except SMTPServerDisconnected as error:
            if "upgrading" in error.message:
                return self.no_reply(_BROKEN_OFF)
            cause = error.__cause__
            return self.no_reply(f"{CLOSED}: {reason_of(cause)}" if cause and str(cause) else CLOSED)
        except SMTPResponseException as error:
            if self.phase is SmtpPhase.CONNECT and not 200 <= error.code <= 599:
                return self.no_reply(NO_GREETING)
            if not 200 <= error.code <= 599:
                return self.no_reply(f"invalid reply from the server: {self.scrub(error.message)}")
            response = SMTPResponse(error.code, error.message)
        except OSError as error:
            return self.no_reply(_tls_reason(error) or f"the connection failed: {reason_of(error)}")
        if self.phase is SmtpPhase.CONNECT and response.code != GREETING:
            # Not a mail server that wants to talk: its text may be that of any service inside the network.
            response = SMTPResponse(response.code, NO_GREETING)
        # A server may repeat secrets in its replies, which are stored and shown.
        text = response.message if response.code < 300 and self.transcript is None else self.scrub(response.message)
        reply = SmtpReply(response.code, text)
        if self.transcript is not None:
            self.note(f"< {reply.line}")
        self.is_over = is_over(self.phase, reply)
        return reply

    def no_reply(self, reason: str) -> SmtpReply:
        self.is_over = True
        self.note(f"* {reason}")
        return SmtpReply(0, reason)

    def may_go_on(self, reply: SmtpReply) -> bool:
        return classify(self.phase, reply) is ReplyVerdict.ACCEPTED

    def note(self, line: str) -> None:
        """Add a line to the transcript, if there is one."""
        if self.transcript is not None:
            self.transcript(line)


CLOSED = "the server closed the connection"
_FULL_NAME = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_BROKEN_OFF = "the server aborted the TLS handshake; check that it supports TLS 1.2 or newer"
_TOO_OLD = frozenset(
    {
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
        "WRONG_SSL_VERSION",
        "VERSION_TOO_LOW",
        "LEGACY_SIGALG_DISALLOWED_OR_UNSUPPORTED",
    }
)
"""OpenSSL's codes for a server without TLS 1.2. Its texts differ between versions."""


def _tls_reason(error: OSError) -> str:
    """The sentence for a server whose TLS is too old; empty for any other error."""
    if isinstance(error, ssl.SSLError) and error.reason in _TOO_OLD:
        return f"the server's version of TLS is too old; TLS 1.2 or newer is required ({error.reason})"
    return ""
