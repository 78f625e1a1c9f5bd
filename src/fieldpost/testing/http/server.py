"""An HTTP server for tests: it accepts every request unless a rule says otherwise.

    async with HttpServer() as server:
        server.on("POST", "/orders").answer(503).times(2)
        ...                                       # something calls server.url
        requests = await server.received(3)
        assert requests[0].headers["idempotency-key"] == requests[2].headers["idempotency-key"]

It implements HTTP/1.1 itself, since a framework would not let it misbehave. `rules.py` documents the rules of `on`.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fieldpost.clock import Clock, SystemClock
from fieldpost.testing.http.rules import HttpReaction, HttpRule, ReceivedRequest
from fieldpost.testing.loopback import LoopbackServer, reset_connection
from fieldpost.testing.misbehaving import Ending, PeerGone, wait_unless
from fieldpost.testing.thread import ServerThread
from fieldpost.testing.waiters import Waiters

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024


class HttpServer(LoopbackServer):
    """An HTTP server on loopback."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[ReceivedRequest], HttpReaction | None] | None = None,
        clock: Clock | None = None,
        kept_max: int | None = None,
    ) -> None:
        """`port` 0 picks a free port, which the server keeps over stop and start. `tls` contains its certificate.

        `on_request` is called for every request without a rule and may return an `HttpReaction`. `kept_max` is how many
        of the newest requests it keeps; all by default.
        """
        super().__init__(host, port)
        self._tls = tls
        self._on_request = on_request
        self._clock = clock or SystemClock()
        self._requests: deque[ReceivedRequest] = deque(maxlen=kept_max)
        self._request_count = 0
        self._connection_count = 0
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._waiters = Waiters()

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._listen(
            lambda: asyncio.StreamReaderProtocol(_Reader(limit=HEAD_BYTES_MAX), self._serve), ssl=self._tls
        )

    async def stop(self) -> None:
        if self._listener is None:
            return
        self._kept_port.leave(self._listener)
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener = None

    def close_connections(self) -> None:
        """Close every open connection, as a server does with idle ones, and keep listening."""
        for writer in self._open.values():
            writer.close()

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self.host}:{self.port}"

    # -- behaving and misbehaving --------------------------------------------------------------------------------------

    def on(
        self,
        method: str | None = None,
        path: str | None = None,
        *,
        when: Callable[[ReceivedRequest], bool] | None = None,
    ) -> HttpRule:
        """Add a rule for this method, this path and this condition."""
        rule = HttpRule(method, path, when)
        self._rules.add(rule)
        return rule

    # -- record --------------------------------------------------------------------------------------------------------

    @property
    def requests(self) -> Sequence[ReceivedRequest]:
        """All complete requests, answered or not, oldest first."""
        return list(self._requests)

    @property
    def connection_count(self) -> int:
        """The number of connections so far."""
        return self._connection_count

    async def received(self, count: int = 1, *, timeout_s: float = 30) -> Sequence[ReceivedRequest]:
        """Wait for this number of requests and return all. Raises TimeoutError."""
        await self.until(lambda: len(self._requests) >= count, timeout_s=timeout_s, what=f"{count} requests")
        return self.requests

    async def idle(self, *, timeout_s: float = 30) -> None:
        """Wait until no connection is open. Raises TimeoutError."""
        await self.until(lambda: not self._open, timeout_s=timeout_s, what="all connections to end")

    async def until(self, is_so: Callable[[], bool], *, timeout_s: float = 30, what: str = "it to be so") -> None:
        """Wait for a condition, checked on each request, connection and disconnection. Raises TimeoutError."""
        await self._waiters.until(is_so, timeout_s, what, lambda: f"{len(self._requests)} requests received")

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connection_count += 1
        self._open[task] = writer
        self._waiters.wake()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, PeerGone):
                await self._converse(reader, writer, self._connection_count)
        except asyncio.CancelledError:
            # Cancelled by `stop`; asyncio's streams would log it as an error.
            pass
        except Exception as bug:
            self._bugs.append(bug)
        finally:
            del self._open[task]
            writer.close()
            self._waiters.wake()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        while (request := await self._read(reader, connection)) is not None:
            reaction = self._reaction(request)
            self._requests.append(request)
            self._waiters.wake()
            assert isinstance(reader, _Reader)
            await self._answer(reaction, writer, reader.ended)
            if reaction.ending is Ending.RESET:
                reset_connection(writer.transport)
            if reaction.ending is not Ending.STAY:
                return

    async def _answer(self, reaction: HttpReaction, writer: asyncio.StreamWriter, ended: asyncio.Event) -> None:
        if reaction.event is not None:
            await wait_unless(ended, reaction.event.wait())
        if reaction.delay_s:
            await wait_unless(ended, self._clock.sleep(reaction.delay_s))
        if reaction.drip_s is None:
            writer.write(reaction.answer)
            await writer.drain()
        else:
            for byte in reaction.answer:
                writer.write(bytes([byte]))
                await wait_unless(ended, self._clock.sleep(reaction.drip_s))
        if reaction.ending is Ending.HANG:
            await ended.wait()

    async def _read(self, reader: asyncio.StreamReader, connection: int) -> ReceivedRequest | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ", 2)
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await _chunked(reader)
        else:
            body = await reader.readexactly(min(int(headers.get("content-length", "0")), BODY_BYTES_MAX))
        self._request_count += 1
        return ReceivedRequest(self._request_count, connection, method, target, headers, body)

    def _reaction(self, request: ReceivedRequest) -> HttpReaction:
        reaction: HttpReaction | None = self._rules.reaction(request)
        if reaction is None and self._on_request is not None:
            reaction = self._on_request(request)
        return reaction or HttpReaction()


class HttpServerThread(ServerThread[HttpServer]):
    """An `HttpServer` (with the same options) for tests without an event loop.

    with HttpServerThread() as server:
        server.on("POST").answer(503).times(1)
        ...
        requests = server.received(2)
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(HttpServer(**options))


class _Reader(asyncio.StreamReader):
    """Signals that the client disconnected, even while nothing is being read."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return body
