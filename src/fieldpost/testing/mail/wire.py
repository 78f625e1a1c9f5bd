"""One connection as bytes: lines and messages in, answers out, and every way to end it.

The session above reads as one coroutine; this protocol feeds it. Answers are collected and leave when the session would
wait for input, so pipelined commands are answered in one packet, as RFC 2920 asks of a good server.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from typing import cast

from fieldpost.testing.misbehaving import Waitable

LINE_BYTES_MAX = 4096
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_END_OF_MESSAGE = b"\r\n.\r\n"


class LineTooLong(Exception):
    """A command line beyond the limit; it has been skipped."""


class MessageTooBig(Exception):
    """A message beyond the limit; it has been skipped."""


class PeerGone(Exception):
    """The client left, or the server stops: nobody is there to answer."""


class ServerWire(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(self, message_bytes_max: int, on_open: Callable[["ServerWire"], None]) -> None:
        self._on_open = on_open
        self._transport: asyncio.Transport
        self._message_bytes_max = message_bytes_max
        # Dot-stuffing at most doubles a message; what is pipelined behind it is short.
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
        """The next line without its end. Raises PeerGone, LineTooLong."""
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
        """A message up to its dot, dot-stuffing undone. Raises PeerGone, MessageTooBig."""
        # With the line end of DATA in front, an empty message ends like any other, and a dot at the very start is
        # stuffed like any other. Only CRLF counts: taking a bare LF for a line end is how mails get smuggled.
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

    # -- out -----------------------------------------------------------------------------------------------------------

    def say(self, answer: bytes) -> None:
        self._answers.append(answer)

    def flush(self) -> None:
        if self._answers:
            answers, self._answers = b"".join(self._answers), []
            self._transport.write(answers)

    async def drip(self, answer: bytes, pace: Waitable) -> None:
        """Send byte by byte, each after one more wait."""
        for byte in answer:
            await self.while_open(pace)
            self._transport.write(bytes([byte]))

    async def while_open(self, event: Waitable) -> None:
        """Wait for this event as long as somebody waits for the answer. Raises PeerGone."""
        self.flush()
        waiting = asyncio.ensure_future(event.wait())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise PeerGone
            waiting.result()
        finally:
            waiting.cancel()
            ended.cancel()

    # -- TLS and the end -----------------------------------------------------------------------------------------------

    def hold_input(self) -> None:
        """Leave what comes next to the TLS handshake."""
        self._transport.pause_reading()

    async def start_tls(self, context: ssl.SSLContext, timeout_s: float, *, is_first: bool = False) -> None:
        """Shake hands; `is_first`: nothing was said before. Raises OSError (of which ssl.SSLError is one)."""
        if not is_first:
            # What came in clear after STARTTLS is not the client's word: an attacker may have put it there.
            self._received.clear()
        self.flush()
        # No await may stand between the answer and the next line, or the client's hello would be read as a command.
        shaking = asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_side=True, ssl_handshake_timeout=timeout_s
        )
        if is_first:
            # uvloop begins to read before anybody can stop it, so the client's hello may be here already.
            asyncio.get_running_loop().call_soon(self._pass_on_hello, self._transport, 3)
        secured = await shaking
        if secured is None:
            raise ConnectionResetError("the client left during the TLS handshake")
        self._transport = secured
        self.is_tls = True

    def _pass_on_hello(self, plain: asyncio.Transport, turns: int) -> None:
        """Give the loop's TLS protocol what was read before it was there, once it has been told of its transport."""
        if turns:
            asyncio.get_running_loop().call_soon(self._pass_on_hello, plain, turns - 1)
            return
        hello = self._take(len(self._received))
        protocol = cast(asyncio.BufferedProtocol, plain.get_protocol())
        while hello and hasattr(protocol, "get_buffer"):  # uvloop's is of no class of asyncio's
            room = memoryview(protocol.get_buffer(len(hello)))
            count = min(len(room), len(hello))
            room[:count] = hello[:count]
            protocol.buffer_updated(count)
            hello = hello[count:]

    def stop(self) -> None:
        """The server goes down: whoever waits for this client wakes."""
        self.is_stopping = True
        self._end()

    async def hang(self) -> None:
        """Read and say nothing until the client goes away."""
        self.flush()
        self._is_deaf = True
        self._transport.resume_reading()
        await self._ended.wait()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def reset(self) -> None:
        self.flush()
        sock = cast(socket.socket, self._transport.get_extra_info("socket"))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    @property
    def peer(self) -> str:
        host, port = self._transport.get_extra_info("peername")[:2]
        return f"{host}:{port}"

    # -- what asyncio calls --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._received += data
        if self._input is None and len(self._received) > self._buffer_bytes_max:
            # Nobody reads at present and the client goes on sending: let it feel that.
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._end()
        # A client may pipeline all it has, close its side and still want the answers; TLS knows no such half.
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
            return  # more may have come in the meantime
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
