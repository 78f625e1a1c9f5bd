"""Connections of the guarded client: one request at a time on each, a limited number of idle ones."""

import asyncio
from collections.abc import Callable
from typing import cast

from fieldpost.outbound.answer_parser import AnswerParser, InvalidAnswer

IDLE_MAX = 256
IDLE_S = 15.0
WRITE_APART_BYTES = 16 * 1024
"""A larger body is not copied behind its head."""

ConnectionKey = tuple[str, str, int]
"""Scheme, host and port."""


class HttpConnection(asyncio.Protocol):
    """One connection. `send` a request, then wait for the future that it returns."""

    def __init__(self, key: ConnectionKey, on_lost: Callable[["HttpConnection"], None]) -> None:
        self.key = key
        self.idle_since = 0.0
        self.is_sent = False
        """The whole request was written, over TLS at least to the TLS layer, so the server may have processed it."""
        self.failure: Exception | None = None
        """Why there is no answer; None if the server closed the connection."""
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._is_write_paused = False
        self._parser: AnswerParser | None = None
        self._ended: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def send(self, head: bytes, body: bytes, parser: AnswerParser) -> "asyncio.Future[None]":
        """Write a request. The future ends with the answer, with the connection, or by `expire`."""
        assert self._transport is not None, "the connection is established"
        self._parser, self.is_sent = parser, False
        self._ended = asyncio.get_running_loop().create_future()
        if len(body) <= WRITE_APART_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        self.is_sent = not self._is_write_paused
        return self._ended

    def expire(self) -> None:
        """The deadline of the request has passed."""
        self._end(TimeoutError())

    def release(self) -> bool:
        """End the request; whether the connection may carry another one. If not, it is closed."""
        parser, self._parser, self._ended = self._parser, None, None
        if parser is not None and parser.is_reusable and self.is_sent and not self.is_closed:
            return True
        self.abort()
        return False

    def abort(self) -> None:
        """Close the connection at once, without sending buffered data."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Writing is paused for as long as any byte of the request is left here.
        self._transport.set_write_buffer_limits(high=1, low=0)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.is_sent = self._parser is not None

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self.abort()  # nobody asked for it
            return
        try:
            parser.feed(data)
        except InvalidAnswer as error:
            self._end(error)
        else:
            if parser.is_done:
                self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._parser is not None:
            self._parser.feed_eof()
        self._end(error)
        self._on_lost(self)

    def _end(self, failure: Exception | None) -> None:
        if self._ended is not None and not self._ended.done():
            self.failure = failure
            self._ended.set_result(None)


class ConnectionPool:
    """Idle connections, most recently used first. They are closed after `IDLE_S`, or at once beyond `IDLE_MAX`."""

    def __init__(self) -> None:
        self._idle: dict[ConnectionKey, list[HttpConnection]] = {}
        self._open: set[HttpConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.idle_count = 0

    def make(self, key: ConnectionKey) -> HttpConnection:
        made = HttpConnection(key, self._forget)
        self._open.add(made)
        return made

    def take(self, key: ConnectionKey) -> HttpConnection | None:
        """An idle connection; it may still turn out to be closed."""
        while idle := self._idle.get(key):
            connection = idle[-1]
            self._remove(connection)
            if not connection.is_closed:
                return connection
        return None

    def put(self, connection: HttpConnection) -> None:
        if self.idle_count >= IDLE_MAX:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.key, []).append(connection)
        self.idle_count += 1
        if self._timer is None:
            self._timer = loop.call_later(IDLE_S, self._close_old)

    async def close(self) -> None:
        """Close all connections, busy ones too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()
        self.idle_count = 0
        await asyncio.sleep(0)  # the event loop closes the sockets

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for connection in [one for idle in self._idle.values() for one in idle]:
            if loop.time() - connection.idle_since >= IDLE_S:
                self._remove(connection)
                connection.abort()
        if self._idle:
            self._timer = loop.call_later(IDLE_S, self._close_old)

    def _forget(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle.get(connection.key, ()):
            self._remove(connection)

    def _remove(self, connection: HttpConnection) -> None:
        idle = self._idle[connection.key]
        idle.remove(connection)
        self.idle_count -= 1
        if not idle:
            del self._idle[connection.key]
