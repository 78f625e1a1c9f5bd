"""The HTTP server on a loop and thread of its own, for tests without a loop: those that start real processes."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from fieldpost.testing.http.rules import ReceivedRequest, Rule
from fieldpost.testing.http.server import HttpServer
from fieldpost.testing.mail.thread import Gate

T = TypeVar("T")


class HttpServerThread:
    """An `HttpServer` (which takes the same options) whose waits are plain calls.

    with HttpServerThread() as server:
        server.on("POST").answer(503).times(1)
        ...
        requests = server.received(2)
    """

    def __init__(self, **options: Any) -> None:
        self._server = HttpServer(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        try:
            self._run(self._server.__aexit__(kind, error, traceback))
        finally:
            self._end()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        """Listen again after `stop`, on the same port."""
        self._run(self._server.start())

    def stop(self) -> None:
        """Be away, as a server that is down; what was received stays."""
        self._run(self._server.stop())

    def on(
        self,
        method: str | None = None,
        path: str | None = None,
        *,
        when: Callable[[ReceivedRequest], bool] | None = None,
    ) -> Rule:
        """Lay a rule. While requests already flow a half-told rule does nothing yet, which may be too late."""
        return self._server.on(method, path, when=when)

    def behave(self) -> None:
        """Withdraw all rules."""
        self.call(lambda server: server.behave())

    def call(self, function: Callable[[HttpServer], T]) -> T:
        """Run this in the server's thread: `thread.call(lambda server: server.close_connections())`."""

        async def run() -> T:
            return function(self._server)

        return self._run(run())

    def gate(self) -> Gate:
        """A gate for `Rule.wait`."""
        return Gate(self._loop)

    @property
    def requests(self) -> Sequence[ReceivedRequest]:
        return self.call(lambda server: server.requests)

    def received(self, count: int = 1, *, timeout_s: float = 10) -> Sequence[ReceivedRequest]:
        return self._run(self._server.received(count, timeout_s=timeout_s))

    def until(self, is_so: Callable[[], bool], *, timeout_s: float = 10, what: str = "it to be so") -> None:
        """Like `HttpServer.until`; `is_so` is asked in the server's thread."""
        self._run(self._server.until(is_so, timeout_s=timeout_s, what=what))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
