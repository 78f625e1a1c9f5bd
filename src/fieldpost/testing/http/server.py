"""The HTTP server for tests: it takes every request unless it is told otherwise.

    async with HttpServer() as server:
        server.on("POST", "/orders").answer(503).times(2)
        ...                                       # something calls server.url
        requests = await server.received(3)
        assert requests[0].headers["idempotency-key"] == requests[2].headers["idempotency-key"]

It speaks HTTP/1.1 by hand, since a framework would not let it misbehave; what can be laid with `on` stands in
`rules.py`.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Self

from fieldpost.clock import Clock, SystemClock
from fieldpost.testing.http.rules import HttpReaction, HttpRule, ReceivedRequest
from fieldpost.testing.kept_port import KeptPort
from fieldpost.testing.misbehaving import Ending
from fieldpost.testing.waiters import Waiters

HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class HttpServer:
    """A server on loopback; an async context manager, or `start` and `stop` as often as a test likes."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[ReceivedRequest], HttpReaction | None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`port` 0 takes a free one, which stays the server's over stop and start. `tls` holds its certificate.

        `on_request` is asked for every request that no rule speaks of; it may give an `HttpReaction` of its own.
        """
        self.host = host
        self.port = port
        self._tls = tls
        self._on_request = on_request
        self._clock = clock or SystemClock()
        self._rules: list[HttpRule] = []
        self._requests: list[ReceivedRequest] = []
        self._connection_count = 0
        self._listener: asyncio.Server | None = None
        self._kept_port = KeptPort()
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._waiters = Waiters()
        self._bugs: list[BaseException] = []

    # -- starting and stopping -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self.stop()
        self._kept_port.give_up()
        # A predicate of the test's that raised would otherwise look like a server that hung up.
        if self._bugs and error is None:
            raise self._bugs[0]

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        kept = self._kept_port.come_back()
        place = {"host": self.host, "port": self.port} if kept is None else {"sock": kept}
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: asyncio.StreamReaderProtocol(_Reader(limit=HEAD_BYTES_MAX), self._serve), ssl=self._tls, **place
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more and end every connection. What was received stays; `start` may follow."""
        if self._listener is None:
            return
        self._kept_port.leave(self._listener)
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener = None

    def close_connections(self) -> None:
        """End every open connection, as a server does with those that were idle for long; it goes on listening."""
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
        """Lay a rule: for this method, this path, and when this is so."""
        rule = HttpRule(method, path, when)
        self._rules.append(rule)
        return rule

    def behave(self) -> None:
        """Withdraw all rules."""
        for rule in self._rules:
            rule.withdraw()
        self._rules = []

    # -- what was seen -------------------------------------------------------------------------------------------------

    @property
    def requests(self) -> Sequence[ReceivedRequest]:
        """All requests that came in whole, answered or not, the oldest first."""
        return list(self._requests)

    @property
    def connection_count(self) -> int:
        """How many connections there have been."""
        return self._connection_count

    async def received(self, count: int = 1, *, timeout_s: float = 30) -> Sequence[ReceivedRequest]:
        """All requests, once there are so many. Raises TimeoutError."""
        await self.until(lambda: len(self._requests) >= count, timeout_s=timeout_s, what=f"{count} requests")
        return self.requests

    async def idle(self, *, timeout_s: float = 30) -> None:
        """Return once no connection is open. Raises TimeoutError."""
        await self.until(lambda: not self._open, timeout_s=timeout_s, what="all connections to end")

    async def until(self, is_so: Callable[[], bool], *, timeout_s: float = 30, what: str = "it to be so") -> None:
        """Return once it is so; asked again with each request, connection and end of one. Raises TimeoutError."""
        await self._waiters.until(is_so, timeout_s, what, lambda: f"{len(self._requests)} requests came")

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connection_count += 1
        self._open[task] = writer
        self._waiters.wake()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, _Gone):
                await self._converse(reader, writer, self._connection_count)
        except asyncio.CancelledError:
            # By `stop`. The streams would log it as if something had gone wrong.
            pass
        except Exception as bug:
            self._bugs.append(bug)
        finally:
            del self._open[task]
            writer.close()
            self._waiters.wake()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        while (request := await self._read(reader, connection)) is not None:
            act = self._act(request)
            self._requests.append(request)
            self._waiters.wake()
            assert isinstance(reader, _Reader)
            await self._do(act, writer, reader.ended)
            if act.ending is Ending.RESET:
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()
                return
            if act.ending is not Ending.STAY:
                return

    async def _do(self, act: HttpReaction, writer: asyncio.StreamWriter, ended: asyncio.Event) -> None:
        if act.event is not None:
            await _unless(ended, act.event.wait())
        if act.delay_s:
            await _unless(ended, self._clock.sleep(act.delay_s))
        if act.drip_s is None:
            writer.write(act.answer)
            await writer.drain()
        else:
            for byte in act.answer:
                writer.write(bytes([byte]))
                await _unless(ended, self._clock.sleep(act.drip_s))
        if act.ending is Ending.HANG:
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
        return ReceivedRequest(len(self._requests) + 1, connection, method, target, headers, body)

    def _act(self, request: ReceivedRequest) -> HttpReaction:
        for rule in self._rules:
            act = rule.take(request)
            if act is not None:
                return act
        return (self._on_request(request) if self._on_request is not None else None) or HttpReaction()


class _Gone(Exception):
    """The client left before it was answered."""


class _Reader(asyncio.StreamReader):
    """Tells when the client has gone, also while nobody reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


async def _unless(ended: asyncio.Event, awaited: Coroutine[Any, Any, object]) -> None:
    """Wait for this as long as somebody waits for the answer."""
    waiting, gone = asyncio.ensure_future(awaited), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise _Gone
        waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return body
