"""Runs a server in a separate thread, for tests without an event loop, such as those that start processes."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")


class ThreadedServer(Protocol):
    """A server that `ServerThread` can run."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any, /
    ) -> None: ...

    @property
    def port(self) -> int: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def behave(self) -> None: ...

    async def until(self, is_so: Callable[[], bool], *, timeout_s: float, what: str) -> None: ...


S = TypeVar("S", bound=ThreadedServer)


class Gate:
    """An event for `wait` of a rule that any thread may open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        await self._event.wait()


class ServerThread(Generic[S]):
    """Base of the threaded servers, with blocking methods."""

    def __init__(self, server: S) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(server).__name__, daemon=True)

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
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        """Listen again after `stop`, on the same port."""
        self._run(self._server.start())

    def stop(self) -> None:
        """Stop listening, like a server that is down; the record stays."""
        self._run(self._server.stop())

    def behave(self) -> None:
        """Withdraw all rules."""
        self.call(lambda server: server.behave())

    def call(self, function: Callable[[S], T]) -> T:
        """Run this in the server's thread: `thread.call(lambda server: server.close_connections())`."""

        async def run() -> T:
            return function(self._server)

        return self._run(run())

    def gate(self) -> Gate:
        """A gate for `wait` of a rule."""
        return Gate(self._loop)

    def until(self, is_so: Callable[[], bool], *, timeout_s: float = 30, what: str = "it to be so") -> None:
        """Wait until `is_so`, which runs in the server's thread, returns True."""
        self._run(self._server.until(is_so, timeout_s=timeout_s, what=what))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
