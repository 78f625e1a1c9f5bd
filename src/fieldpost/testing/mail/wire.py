"""One connection as bytes: reads lines and messages, writes replies, closes or resets.

The session is one coroutine fed by this protocol. Replies are buffered and sent when the session waits for input, so
pipelined commands are answered in one packet, as RFC 2920 recommends.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from fieldpost.testing.loopback import reset_connection
from fieldpost.testing.misbehaving import PeerGone, Waitable, wait_unless

LINE_BYTES_MAX = 4096
_END_OF_MESSAGE = b"\r\n.\r\n"


class LineTooLong(Exception):
    """A command line beyond the limit; it has been skipped."""


class MessageTooBig(Exception):
    """A message beyond the limit; it has been skipped."""


class ServerWire(asyncio.Protocol):
    """The server side of one connection."""

    def __init__(self, message_bytes_max: int, on_open: Callable[["ServerWire"], None]) -> None:
        self._on_open = on_open
        self._transport: asyncio.Transport
        self._message_bytes_max = message_bytes_max
        # Dot-stuffing at most doubles a message; commands pipelined after it are short.
        self._buffer_bytes_max = 2 * message_bytes_max + 64 * 1024
        self._received = bytearray()
        self._answers: list[bytes] = []
        self._ended = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._input: asyncio.Future[None] | None = None
        self._is_paused = False
        self._is_deaf = False
        self.is_stopping = False
        self.is_tls = False

    # -- in ------------------------------------------------------------------------------------------------------------

    async def line(self) -> bytes:
        """Read the next line without its line end. Raises PeerGone, LineTooLong."""
        skipped = False
        while True:
            end = self._received.find(b"\n")
            if end >= 0:
                line = self._take(end + 1)
                if skipped or end > LINE_BYTES_MAX:
                    raise LineTooLong
                return line.rstrip(b"\r\n")
            if len(self._received) > LINE_BYTES_MAX:
                skipped = True
                self._received.clear()
            await self._more()

    async def message(self) -> bytes:
        """Read a message up to its dot and undo dot-stuffing. Raises PeerGone, MessageTooBig."""
        # With the line end of DATA in front, an empty message and a leading dot need no special case. Only CRLF ends a
        # line: accepting a bare LF allows SMTP smuggling.
        self._received[:0] = b"\r\n"
        scanned, is_skipped = 0, False
        while (end := self._received.find(_END_OF_MESSAGE, scanned)) < 0:
            if len(self._received) > self._buffer_bytes_max:
                is_skipped = True
                del self._received[:-4]
            scanned = max(0, len(self._received) - 4)
            await self._more()
        message = self._take(end + 5)[:-3].replace(b"\r\n.", b"\r\n")[2:]
        if is_skipped or len(message) > self._message_bytes_max:
            raise MessageTooBig
        return message

    def drop_input(self) -> None:
        """Discard received data that was not read yet."""
        self._received.clear()

    # -- out -----------------------------------------------------------------------------------------------------------

    def say(self, answer: bytes) -> None:
        self._answers.append(answer)

    def flush(self) -> None:
        if self._answers:
            answers, self._answers = b"".join(self._answers), []
            self._transport.write(answers)

    async def drip(self, answer: bytes, pace: Waitable) -> None:
        """Send byte by byte, waiting before each."""
        for byte in answer:
            await self.while_open(pace)
            self._transport.write(bytes([byte]))

    async def while_open(self, event: Waitable) -> None:
        """Wait for this event while the client is connected. Raises PeerGone."""
        self.flush()
        await wait_unless(self._ended, event.wait())

    # -- TLS and the end -----------------------------------------------------------------------------------------------

    def hold_input(self) -> None:
        """Leave the next bytes to the TLS handshake."""
        self._transport.pause_reading()

    async def start_tls(self, context: ssl.SSLContext, timeout_s: float, *, is_first: bool = False) -> None:
        """Do the TLS handshake; `is_first`: before any other data. Raises OSError (including ssl.SSLError)."""
        if not is_first:
            # Drop clear text received after STARTTLS: an attacker may have injected it.
            self._received.clear()
        self.flush()
        # No await between the reply and the next line, or the client's hello would be read as a command.
        shaking = asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_side=True, ssl_handshake_timeout=timeout_s
        )
        if is_first:
            # uvloop starts reading before it can be paused, so the client's hello may already be here.
            asyncio.get_running_loop().call_soon(self._pass_on_hello, self._transport, 3)
        secured = await shaking
        if secured is None:
            raise ConnectionResetError("the client left during the TLS handshake")
        self._transport = secured
        self.is_tls = True

    def _pass_on_hello(self, plain: asyncio.Transport, turns: int) -> None:
        """Pass bytes read before the handshake to the loop's TLS protocol, once that has its transport."""
        if turns:
            asyncio.get_running_loop().call_soon(self._pass_on_hello, plain, turns - 1)
            return
        hello = self._take(len(self._received))
        protocol = cast(asyncio.BufferedProtocol, plain.get_protocol())
        while hello and hasattr(protocol, "get_buffer"):  # uvloop's protocol is not an asyncio class
            buffer = memoryview(protocol.get_buffer(len(hello)))
            count = min(len(buffer), len(hello))
            buffer[:count] = hello[:count]
            protocol.buffer_updated(count)
            hello = hello[count:]

    def stop(self) -> None:
        """Wake the session because the server stops."""
        self.is_stopping = True
        self._end()

    async def hang(self) -> None:
        """Ignore input and send nothing until the client disconnects."""
        self.flush()
        self._is_deaf = True
        self._transport.resume_reading()
        await self._ended.wait()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def reset(self) -> None:
        self.flush()
        reset_connection(self._transport)

    @property
    def peer(self) -> str:
        host, port = self._transport.get_extra_info("peername")[:2]
        return f"{host}:{port}"

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._received += data
        if self._input is None and len(self._received) > self._buffer_bytes_max:
            # The session is not reading but the client keeps sending: apply back-pressure.
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._end()
        # A client may pipeline everything, close its side and still read the replies; TLS has no half-close.
        return not self.is_tls

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _more(self) -> None:
        self.flush()
        if not self._writable.is_set():
            await self._writable.wait()
            return  # more data may have arrived meanwhile
        if self._ended.is_set():
            raise PeerGone
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._input = asyncio.get_running_loop().create_future()
        try:
            await self._input
        finally:
            self._input = None

    def _take(self, count: int) -> bytes:
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _end(self) -> None:
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        if self._input is not None and not self._input.done():
            self._input.set_result(None)
