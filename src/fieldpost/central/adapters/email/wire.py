"""aiosmtplib's protocol with support for several replies per write.

aiosmtplib expects one reply per write and drops the rest. With PIPELINING several replies arrive in one packet, so
this class buffers the bytes and parses a reply on request. Unsolicited data stays in the buffer and shows that the two
sides are out of sync (`is_quiet`).
"""

import asyncio
import os
from collections.abc import Callable
from typing import cast

from aiosmtplib.errors import SMTPReadTimeoutError, SMTPResponseException, SMTPServerDisconnected
from aiosmtplib.protocol import MAX_RESPONSE_LENGTH, SMTPProtocol
from aiosmtplib.response import SMTPResponse

_UNREAD_BYTES_MAX = 100 * MAX_RESPONSE_LENGTH
"""Enough for all replies of a transaction at maximum length."""


class SmtpWire(SMTPProtocol):
    """The client side of one connection."""

    def __init__(self) -> None:
        super().__init__()
        self.is_made = False
        """The connection was made, so `on_lost` will be called."""
        self.on_lost: Callable[[], None] | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._end: SMTPServerDisconnected | None = None

    @property
    def is_quiet(self) -> bool:
        """Connected, without unsolicited data from the server."""
        return self._end is None and self.is_connected and not self._buffer

    async def read_response(self, timeout: float | None = None) -> SMTPResponse:
        """Read the next reply. Raises SMTPServerDisconnected, SMTPReadTimeoutError, SMTPResponseException."""
        if (response := self._read_response_from_buffer()) is not None:
            return response
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if self._end is not None:
                        raise self._end
                    if len(self._buffer) > MAX_RESPONSE_LENGTH:
                        raise SMTPResponseException(-1, "Response too long")
                    self._arrived = self._loop.create_future()
                    await self._arrived
                    if (response := self._read_response_from_buffer()) is not None:
                        return response
        except TimeoutError:
            raise SMTPReadTimeoutError("Timed out waiting for server response") from None
        finally:
            self._arrived = None

    @property
    def has_input(self) -> bool:
        """The server has sent something that was not read yet."""
        return bool(self._buffer)

    async def write_out(self, block: bytes) -> None:
        """Return when the block has left this process or the server has sent something. Raises SMTPServerDisconnected
        or OSError."""
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).set_write_buffer_limits(high=0)
        self.write(block)
        drained = asyncio.ensure_future(self._drain_helper())
        self._arrived = self._loop.create_future()
        try:
            await asyncio.wait([drained, self._arrived], return_when=asyncio.FIRST_COMPLETED)
            if drained.done():
                drained.result()
        finally:
            drained.cancel()
            self._arrived = None

    def hang_up(self) -> None:
        """Close at once without sending buffered data."""
        if self.transport is not None:
            cast(asyncio.WriteTransport, self.transport).abort()

    # -- called by asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_made = True
        self._end = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > _UNREAD_BYTES_MAX:
            self._ended(SMTPServerDisconnected("Response too long"))
            self.hang_up()
        self._wake()

    def eof_received(self) -> bool:
        self._ended(SMTPServerDisconnected("Unexpected EOF received"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._buffer += self._unread()
        super().connection_lost(exc)
        error = SMTPServerDisconnected("Connection lost")
        error.__cause__ = exc
        self._ended(error)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def _unread(self) -> bytes:
        """The data that the server sent before it reset the connection. The event loop does not read it when a write
        fails, but it may give the reason. Over TLS it cannot be read any more."""
        if self.transport is None or self.transport.get_extra_info("sslcontext") is not None:
            return b""
        try:
            return os.read(self.transport.get_extra_info("socket").fileno(), MAX_RESPONSE_LENGTH)
        except (OSError, AttributeError):
            return b""

    def _ended(self, error: SMTPServerDisconnected) -> None:
        if self._end is None:
            self._end = error
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
