"""One connection to a mail server, spoken over aiosmtplib's protocol, and the phase it is in.

The client class of that library raises the same error for a connection lost after MAIL, after DATA and after the final
dot, and only the last one may have delivered something. So each command is sent here by itself: `phase` always names
the last one sent, and whatever the world does comes back as a `Reply`, silence included. Nothing is raised but
cancellation and what the gate raises.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

from aiosmtplib.errors import SMTPException, SMTPResponseException, SMTPServerDisconnected, SMTPTimeoutError
from aiosmtplib.esmtp import parse_esmtp_extensions
from aiosmtplib.protocol import SMTPProtocol
from aiosmtplib.response import SMTPResponse

from fieldpost.central.adapters.email.classify import Phase, Reply, Verdict, classify, is_over
from fieldpost.central.adapters.email.settings import Settings
from fieldpost.clock import Clock

BLOCK_BYTES = 16 * 1024
BLOCK_TIMEOUT_S = 180.0
QUIT_TIMEOUT_S = 5.0


class Conversation:
    """All that is said over one connection. `until` is the time, by the clock's monotonic, when all waiting ends."""

    def __init__(self, settings: Settings, tls_context: ssl.SSLContext, clock: Clock, until: float) -> None:
        self.phase = Phase.CONNECT
        self.is_over = False
        """Nothing more can be said; what was not answered by now will not be."""
        self.extensions: dict[str, str] = {}
        """What the server offers, by keyword in small letters."""
        self._settings = settings
        self._tls_context = tls_context
        self._clock = clock
        self._until = until
        self._protocol = _Protocol()
        self._is_in_transaction = False

    # -- before the message --------------------------------------------------------------------------------------------

    async def greet(self) -> Reply:
        """Connect, say EHLO and go over to TLS as the settings want: the last answer, or the first that stops it."""
        reply = await self._connect()
        if not self._may_go_on(reply):
            return reply
        reply = await self._ehlo()
        if self._settings.tls != "starttls" or not self._may_go_on(reply):
            return reply
        reply = await self._start_tls()
        if not self._may_go_on(reply):
            return reply
        return await self._ehlo()

    async def _connect(self) -> Reply:
        host, port = self._settings.host, self._settings.port
        is_tls = self._settings.tls == "implicit"
        timeout_s = self._at_most(self._settings.connect_timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: self._protocol, host, port, ssl=self._tls_context if is_tls else None
                )
        except TimeoutError:
            return self._unheard(f"no connection to {host} port {port} within {timeout_s:g} s")
        except OSError as error:
            reason = str(error) or (_BROKEN_OFF if is_tls else type(error).__name__)
            return self._unheard(f"no connection to {host} port {port}: {reason}")
        timeout_s = self._at_most(self._settings.command_timeout_s)
        return await self._hear(self._protocol.read_response(timeout_s), timeout_s)

    async def _ehlo(self) -> Reply:
        reply = await self._say(Phase.EHLO, f"EHLO {self._own_name()}".encode("ascii"))
        self.extensions = parse_esmtp_extensions(reply.text)[0] if reply.code == 250 else {}
        return reply

    async def _start_tls(self) -> Reply:
        self.phase = Phase.STARTTLS
        if "starttls" not in self.extensions:
            # Somebody on the way may have taken the offer out. There is no falling back to clear text.
            return Reply(0, "the server does not offer STARTTLS, and the channel requires it")
        timeout_s = self._at_most(self._settings.command_timeout_s)
        return await self._hear(
            self._protocol.start_tls(self._tls_context, server_hostname=self._settings.host, timeout=timeout_s),
            timeout_s,
        )

    def _own_name(self) -> str:
        """This machine's full name. To ask DNS for one could block, so without one our address stands for it."""
        name = socket.gethostname()
        if _FULL_NAME.fullmatch(name):
            return name
        if self._protocol.transport is None:
            return "localhost"
        address = self._protocol.transport.get_extra_info("sockname")[0].partition("%")[0]
        return f"[IPv6:{address}]" if ":" in address else f"[{address}]"

    # -- one transaction -----------------------------------------------------------------------------------------------

    async def mail(self, sender: str, *, size: int, is_utf8: bool) -> Reply:
        """MAIL FROM; a transaction that was begun and not ended is reset first."""
        if self._is_in_transaction:
            reply = await self._say(Phase.MAIL, b"RSET")
            if reply.code != 250:
                return reply
        line = f"MAIL FROM:<{sender}>"
        if "size" in self.extensions:
            line += f" SIZE={size}"
        if is_utf8:
            line += " SMTPUTF8"
        self._is_in_transaction = True
        return await self._say(Phase.MAIL, line.encode("ascii"))

    async def rcpt(self, address: str) -> Reply:
        return await self._say(Phase.RCPT, f"RCPT TO:<{address}>".encode())

    async def data(self, message: bytes, gate: Callable[[], None]) -> Reply:
        """DATA and the message; the reply belongs to the phase that it ended in. The gate may raise before the dot."""
        reply = await self._say(Phase.DATA, b"DATA")
        if not self._may_go_on(reply):
            return reply
        content = stuffed(message)
        # Most messages are one block. Of a longer one each block has to be on its way before the next, so that the
        # gate is asked when the dot really goes out, not when it joins a queue.
        last = max(0, len(content) - 1) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(0, last, BLOCK_BYTES):
            failure = await self._write_out(content[start : start + BLOCK_BYTES])
            if failure is not None:
                return failure
        timeout_s = self._at_most(self._settings.data_timeout_s)
        if timeout_s <= 0:
            return self._unheard("the time of the attempt was used up before the message was sent")
        gate()
        try:
            self._protocol.write(content[last:])
        except SMTPServerDisconnected:
            return self._unheard(_CLOSED)
        # From here on the server may have the mail, whatever we hear or do not hear.
        self.phase = Phase.DOT
        self._is_in_transaction = False
        return await self._hear(self._protocol.read_response(timeout_s), timeout_s)

    async def _write_out(self, block: bytes) -> Reply | None:
        timeout_s = self._at_most(BLOCK_TIMEOUT_S)
        try:
            async with asyncio.timeout(timeout_s):
                await self._protocol.write_out(block)
        except TimeoutError:
            return self._unheard(f"the server took no more of the message for {timeout_s:g} s")
        except (SMTPServerDisconnected, OSError):
            return self._unheard(_CLOSED)
        return None

    # -- the end -------------------------------------------------------------------------------------------------------

    async def quit(self) -> None:
        """Take leave; nothing that happens here matters any more."""
        self.phase = Phase.QUIT
        timeout_s = min(QUIT_TIMEOUT_S, self._settings.command_timeout_s)
        try:
            await self._protocol.execute_command(b"QUIT", timeout=timeout_s)
        except (SMTPException, OSError):
            self.abort()
        except asyncio.CancelledError:
            self.abort()
            raise
        else:
            if self._protocol.transport is not None:
                self._protocol.transport.close()

    def abort(self) -> None:
        """Hang up at once; what was not sent yet stays unsent."""
        self.is_over = True
        if self._protocol.transport is not None:
            cast(asyncio.WriteTransport, self._protocol.transport).abort()

    # -- saying and hearing --------------------------------------------------------------------------------------------

    async def _say(self, phase: Phase, line: bytes) -> Reply:
        self.phase = phase
        timeout_s = self._at_most(self._settings.command_timeout_s)
        return await self._hear(self._protocol.execute_command(line, timeout=timeout_s), timeout_s)

    async def _hear(self, answer: Awaitable[SMTPResponse], timeout_s: float) -> Reply:
        try:
            response = await answer
        except SMTPTimeoutError:
            return self._unheard(f"no answer within {timeout_s:g} s")
        except SMTPServerDisconnected as error:
            if "upgrading" in error.message:
                return self._unheard(_BROKEN_OFF)
            cause = str(error.__cause__ or "")
            return self._unheard(f"{_CLOSED}: {cause}" if cause else _CLOSED)
        except SMTPResponseException as error:
            if not 200 <= error.code <= 599:
                return self._unheard(f"what the server said is no reply: {error.message}")
            response = SMTPResponse(error.code, error.message)
        except OSError as error:
            return self._unheard(f"the connection failed: {error}")
        reply = Reply(response.code, response.message)
        self.is_over = is_over(self.phase, reply)
        return reply

    def _unheard(self, what: str) -> Reply:
        self.is_over = True
        return Reply(0, what)

    def _may_go_on(self, reply: Reply) -> bool:
        return classify(self.phase, reply) is Verdict.ACCEPTED

    def _at_most(self, timeout_s: float) -> float:
        return min(timeout_s, max(0.0, self._until - self._clock.monotonic()))


class _Protocol(SMTPProtocol):
    """The library's protocol, which sends a message only as a whole, taught to send it in blocks."""

    async def write_out(self, block: bytes) -> None:
        """Return when the block has left this process. Raises SMTPServerDisconnected or OSError."""
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).set_write_buffer_limits(high=0)
        self.write(block)
        await self._drain_helper()


def stuffed(message: bytes) -> bytes:
    """The message as it travels: lines that begin with a dot get another, and a dot alone ends it."""
    if message.startswith(b"."):
        message = b"." + message
    return message.replace(b"\r\n.", b"\r\n..") + b".\r\n"


_FULL_NAME = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)
_CLOSED = "the server closed the connection"
_BROKEN_OFF = "the server broke off the TLS handshake; does it speak TLS 1.2 or newer?"
