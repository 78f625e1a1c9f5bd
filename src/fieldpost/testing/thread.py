"""Runs a server in a separate thread, for tests without an event loop, such as those that start processes."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, Generic, Self, TypeVar

from fieldpost.testing.loopback import LoopbackServer

T = TypeVar("T")


S = TypeVar("S", bound=LoopbackServer)


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
    """Base of the threaded servers: all methods of the server, blocking.

    Add and configure a rule in one `call` if messages are already arriving.
    """

    def __init__(self, server: S) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(server).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._server.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        try:
            self._run(self._server.__aexit__(kind, error, traceback))
        finally:
            self._end()

    def __getattr__(self, name: str) -> Any:
        found = self.call(lambda server: getattr(server, name))
        return (lambda *args, **options: self._run(found(*args, **options))) if iscoroutinefunction(found) else found

    def call(self, function: Callable[[S], T]) -> T:
        """Run this in the server's thread: `thread.call(lambda server: server.close_connections())`."""

        async def run() -> T:
            return function(self._server)

        return self._run(run())

    def gate(self) -> Gate:
        """A gate for `wait` of a rule."""
        return Gate(self._loop)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
