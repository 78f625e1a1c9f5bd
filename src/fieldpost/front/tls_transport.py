"""TLS on an accepted connection, in memory that does not grow with a peer that floods or does not read.

The event loops offer TLS too, but they keep 256 KiB per connection for reading, and encrypt an answer as soon as it is
written: three hundred peers that did not read cost a hundred megabytes. Here all connections of a listener read into
one buffer, and an answer is encrypted record by record, while the socket takes it.

An object of this class is the protocol of the socket and the transport of the HTTP connection. Its states: handshake,
open, closing (sends buffered data, then the close alert, discards received data, and ends when the peer has closed too;
the write deadline of the connection ends a peer that does not), closed.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from fieldpost.front.http_limits import WRITE_BYTES

RECORD_BYTES = 16 * 1024
"""The most that one TLS record holds."""
SOCKET_BYTES = 16 * 1024
"""How many encrypted bytes may wait for the socket before encryption pauses."""


class _Nobody(asyncio.Protocol):
    """Takes the place of the HTTP connection before its start and after its end, when neither needs the other."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The server's side of one TLS connection."""

    def __init__(
        self, context: ssl.SSLContext, create_protocol: Callable[[], asyncio.Protocol], received: memoryview
    ) -> None:
        """`received` is overwritten by the next read of any connection of this event loop."""
        super().__init__()
        self._create_protocol = create_protocol
        self._received = received
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._more_info: dict[str, Any] = {"sslcontext": context, "ssl_object": self._tls}
        self._protocol: asyncio.BaseProtocol = _Nobody()
        self._socket: asyncio.Transport | None = None
        self._handshake: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._is_open = False
        self._is_closing = False
        self._is_alert_sent = False
        self._is_reading = True
        self._waiting: deque[memoryview] = deque()
        """Written by the protocol, and not encrypted yet."""
        self._waiting_bytes = 0
        self._is_socket_full = False
        self._is_protocol_paused = False
        self._high, self._low = WRITE_BYTES, WRITE_BYTES // 4

    async def established(self) -> bool:
        """Wait for the end of the handshake; False if it failed."""
        return await self._handshake

    # The protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if self._is_closing:
            self._sink.abort()
            return
        self._sink.set_write_buffer_limits(high=SOCKET_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closing = True
        self._drop_waiting()
        self._settle(is_established=False)
        # Closed connections are garbage in cycles, which may be collected much later; a session is 50 KiB.
        self._more_info.clear()
        del self._tls, self._incoming, self._outgoing
        protocol, self._protocol = self._protocol, _Nobody()
        if self._is_open:
            protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._received[:nbytes])
        if self._is_closing:
            self._discard()
        elif self._is_open:
            self._read()
        else:
            self._shake_hands()

    def eof_received(self) -> None:
        """The peer has ended the connection: the socket closes after its buffered data."""
        if self._is_open and not self._is_closing:
            self._is_closing = True
            self._drop_waiting()
            self._reader.eof_received()

    def pause_writing(self) -> None:
        self._is_socket_full = True

    def resume_writing(self) -> None:
        self._is_socket_full = False
        self._send()

    # The transport of the HTTP connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name in self._more_info:
            return self._more_info[name]
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        if self.is_reading():
            self._is_reading = False
            self._sink.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._sink.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low
        self._control_protocol()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + (0 if self._socket is None else self._socket.get_write_buffer_size())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._waiting.append(memoryview(data if isinstance(data, bytes) else bytes(data)))
        self._waiting_bytes += len(data)
        self._send()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send buffered data and the close alert, and wait for the peer to close."""
        if self._is_closing:
            return
        if not self._is_open:
            self.abort()
            return
        self._is_closing = True
        if not self._is_reading:
            # The end of the peer is to be seen.
            self._sink.resume_reading()
        self._send()

    def abort(self) -> None:
        """Close at once; buffered data is not sent."""
        self._is_closing = True
        self._drop_waiting()
        if self._socket is not None:
            self._socket.abort()

    @property
    def _sink(self) -> asyncio.Transport:
        assert self._socket is not None
        return self._socket

    @property
    def _reader(self) -> asyncio.Protocol:
        assert isinstance(self._protocol, asyncio.Protocol)
        return self._protocol

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
        except ssl.SSLError:
            # The peer gets the reason.
            self._send_encrypted()
            self._is_closing = True
            self._sink.close()
            self._settle(is_established=False)
        else:
            self._send_encrypted()
            self._is_open = True
            self._protocol = self._create_protocol()
            self._protocol.connection_made(self)
            self._settle(is_established=True)
            self._read()

    def _settle(self, *, is_established: bool) -> None:
        if not self._handshake.done():
            self._handshake.set_result(is_established)

    def _read(self) -> None:
        """Pass on all that can be decrypted. Nothing more arrives while the protocol has paused reading."""
        pieces, is_end = self._decrypted()
        # Answers of TLS itself, for example to an update of the keys.
        self._send_encrypted()
        if pieces and not self._is_closing:
            self._reader.data_received(b"".join(pieces))
        if is_end and not self._is_closing:
            self._reader.eof_received()
            self.close()

    def _decrypted(self) -> tuple[list[bytes], bool]:
        """The received data, and whether the peer has sent its close alert."""
        pieces: list[bytes] = []
        try:
            while self._incoming.pending or self._tls.pending():
                piece = self._tls.read(RECORD_BYTES)
                if not piece:
                    return pieces, True
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return pieces, False
        except ssl.SSLZeroReturnError:
            return pieces, True
        except ssl.SSLError:
            self.abort()
        return pieces, False

    def _discard(self) -> None:
        """While closing: of the received data only the end matters."""
        if not self._is_open:
            self._incoming.read()
            return
        _, is_end = self._decrypted()
        if is_end:
            self._drop_waiting()
            self._sink.close()

    def _send(self) -> None:
        """Encrypt buffered data, one record at a time, until the socket is full."""
        while self._waiting and not self._is_socket_full:
            first = self._waiting[0]
            try:
                count = self._tls.write(first[:RECORD_BYTES])
            except ssl.SSLError:
                self.abort()
                return
            self._waiting_bytes -= count
            if count == len(first):
                self._waiting.popleft()
            else:
                self._waiting[0] = first[count:]
            self._send_encrypted()
        if self._is_closing:
            self._send_alert()
        else:
            self._control_protocol()

    def _send_alert(self) -> None:
        """Once everything is sent, send the close alert; the connection ends if the peer has sent its own."""
        if self._waiting or self._is_alert_sent or not self._is_open:
            return
        self._is_alert_sent = True
        is_end = False
        with suppress(ssl.SSLError):
            self._tls.unwrap()
            is_end = True
        self._send_encrypted()
        if is_end:
            self._sink.close()

    def _send_encrypted(self) -> None:
        if self._outgoing.pending:
            self._sink.write(self._outgoing.read())

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _control_protocol(self) -> None:
        """Pause the protocol while too much waits."""
        if not self._is_protocol_paused and self._waiting_bytes > self._high:
            self._is_protocol_paused = True
            self._protocol.pause_writing()
        elif self._is_protocol_paused and self._waiting_bytes <= self._low:
            self._is_protocol_paused = False
            self._protocol.resume_writing()
