"""One connection to a mail server, spoken over aiosmtplib's protocol.

The client class of that library raises the same error for a connection lost after MAIL, after DATA and after the final
dot, and only the last one may have delivered something. So each command is sent here by itself, and whatever the world
does comes back as a `SmtpReply`, silence included. Nothing is raised but cancellation.

Before the first mail `phase` names the last command sent; what is said about a mail is the matter of a `Turn`.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiosmtplib.errors import SMTPException, SMTPResponseException, SMTPServerDisconnected, SMTPTimeoutError
from aiosmtplib.esmtp import parse_esmtp_extensions
from aiosmtplib.response import SMTPResponse

from fieldpost.central.adapters.email.classify import ReplyVerdict, SmtpPhase, SmtpReply, classify, is_over
from fieldpost.central.adapters.email.deadline import AttemptDeadline
from fieldpost.central.adapters.email.settings import EmailSettings
from fieldpost.central.adapters.email.wire import SmtpWire
from fieldpost.core.secret import Scrubber
from fieldpost.outbound.connect import connect
from fieldpost.outbound.guard import AddressGuard, Blocked

QUIT_TIMEOUT_S = 5.0

Transcript = Callable[[str], None]


class SmtpConversation:
    """All that is said over one connection."""

    def __init__(self, settings: EmailSettings, tls_context: ssl.SSLContext, guard: AddressGuard) -> None:
        self.settings = settings
        self.phase = SmtpPhase.CONNECT
        self.is_over = False
        """Nothing more can be said; what was not answered by now will not be."""
        self.extensions: dict[str, str] = {}
        """What the server offers, by keyword in small letters."""
        self.is_tls = False
        self.is_in_transaction = False
        """MAIL was said, and neither a whole message nor RSET since."""
        self.is_reused = False
        self.transcript: Transcript | None = None
        self.scrub = Scrubber()
        self.idle_since = 0.0
        self.dot: asyncio.Future[None] | None = None
        """Done once the message that is on its way has its answer; who speaks meanwhile is heard after it."""
        self.dot_s: float | None = None
        """How long the last message waited for its answer."""
        self.is_doomed = False
        """Whoever spoke meanwhile has gone away: it ends when the message has its answer."""
        self.wire = SmtpWire()
        self._tls_context = tls_context
        self._guard = guard

    # -- before the first mail -----------------------------------------------------------------------------------------

    async def greet(self, deadline: AttemptDeadline) -> SmtpReply:
        """Connect, say EHLO and go over to TLS as the settings want: the last answer, or the first that stops it."""
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
            return self.unheard(f"no connection to {host} port {port}: {blocked.reason}")
        except TimeoutError:
            return self.unheard(f"no connection to {host} port {port} within {timeout_s:g} s")
        except OSError as error:
            reason = str(error) or (_BROKEN_OFF if is_tls else type(error).__name__)
            return self.unheard(f"no connection to {host} port {port}: {reason}")
        self.is_tls = is_tls
        self.tell(f"* connected to {self.peer} port {port}{' over TLS' if is_tls else ''}")
        return await self.hear(SmtpPhase.CONNECT, self.settings.command_timeout_s, deadline)

    async def _ehlo(self, deadline: AttemptDeadline) -> SmtpReply:
        reply = await self.say(SmtpPhase.EHLO, f"EHLO {self._own_name()}".encode("ascii"), deadline)
        self.extensions = parse_esmtp_extensions(reply.text)[0] if reply.code == 250 else {}
        return reply

    async def _start_tls(self, deadline: AttemptDeadline) -> SmtpReply:
        self.phase = SmtpPhase.STARTTLS
        if "starttls" not in self.extensions:
            # Somebody on the way may have taken the offer out. There is no falling back to clear text.
            return SmtpReply(0, "the server does not offer STARTTLS, and the channel requires it")
        timeout_s = deadline.at_most(self.settings.command_timeout_s)
        self.tell("> STARTTLS")
        answer = self.wire.start_tls(self._tls_context, server_hostname=self.settings.host, timeout=timeout_s)
        reply = await self._hear(answer, timeout_s)
        self.is_tls = reply.code == 220
        return reply

    def _own_name(self) -> str:
        """This machine's full name. To ask DNS for one could block, so without one our address stands for it."""
        name = socket.gethostname()
        if _FULL_NAME.fullmatch(name):
            return name
        if self.wire.transport is None:
            return "localhost"
        address = self.wire.transport.get_extra_info("sockname")[0].partition("%")[0]
        return f"[IPv6:{address}]" if ":" in address else f"[{address}]"

    @property
    def peer(self) -> str:
        """The address at the other end; empty when there is none any more."""
        name = self.wire.transport.get_extra_info("peername") if self.wire.transport is not None else None
        return str(name[0]) if name else ""

    # -- the end -------------------------------------------------------------------------------------------------------

    async def quit(self) -> None:
        """Take leave; nothing that happens here matters any more."""
        timeout_s = min(QUIT_TIMEOUT_S, self.settings.command_timeout_s)
        self.tell("> QUIT")
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
        """At once; what was not sent yet stays unsent."""
        self.is_over = True
        self.wire.hang_up()

    # -- saying and hearing --------------------------------------------------------------------------------------------

    async def say(
        self, phase: SmtpPhase, line: bytes, deadline: AttemptDeadline, *, shown: str | None = None
    ) -> SmtpReply:
        """One command and its answer."""
        if not self.send([line], shown=shown):
            self.phase = phase
            return self.unheard(CLOSED)
        return await self.hear(phase, self.settings.command_timeout_s, deadline)

    def send(self, lines: list[bytes], *, shown: str | None = None) -> bool:
        """Commands in one write; False when the connection is gone."""
        if any(_CONTROL.search(line) for line in lines):
            raise ValueError("a command must not contain control characters")
        if self.transcript is not None:
            for line in lines:
                self.tell(f"> {line.decode('utf-8', 'replace') if shown is None else shown}")
        try:
            self.wire.write(b"\r\n".join(lines) + b"\r\n")
        except (SMTPServerDisconnected, OSError):
            return False
        return True

    async def hear(self, phase: SmtpPhase, timeout_s: float, deadline: AttemptDeadline) -> SmtpReply:
        """The next answer, which is one to the command of this phase."""
        self.phase = phase
        timeout_s = deadline.at_most(timeout_s)
        return await self._hear(self.wire.read_response(timeout_s), timeout_s)

    async def _hear(self, answer: Awaitable[SMTPResponse], timeout_s: float) -> SmtpReply:
        try:
            response = await answer
        except SMTPTimeoutError:
            return self.unheard(f"no answer within {timeout_s:g} s")
        except SMTPServerDisconnected as error:
            if "upgrading" in error.message:
                return self.unheard(_BROKEN_OFF)
            cause = str(error.__cause__ or "")
            return self.unheard(f"{CLOSED}: {cause}" if cause else CLOSED)
        except SMTPResponseException as error:
            if not 200 <= error.code <= 599:
                return self.unheard(f"what the server said is no reply: {self.scrub(error.message)}")
            response = SMTPResponse(error.code, error.message)
        except OSError as error:
            return self.unheard(f"the connection failed: {error}")
        # A server may repeat what it was told, and what it says is stored and shown.
        text = response.message if response.code < 300 and self.transcript is None else self.scrub(response.message)
        reply = SmtpReply(response.code, text)
        if self.transcript is not None:
            self.tell(f"< {reply.line}")
        self.is_over = is_over(self.phase, reply)
        return reply

    def unheard(self, what: str) -> SmtpReply:
        self.is_over = True
        self.tell(f"* {what}")
        return SmtpReply(0, what)

    def may_go_on(self, reply: SmtpReply) -> bool:
        return classify(self.phase, reply) is ReplyVerdict.ACCEPTED

    def tell(self, line: str) -> None:
        """To whoever watches, if anybody does."""
        if self.transcript is not None:
            self.transcript(line)


CLOSED = "the server closed the connection"
_FULL_NAME = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_BROKEN_OFF = "the server broke off the TLS handshake; does it speak TLS 1.2 or newer?"
