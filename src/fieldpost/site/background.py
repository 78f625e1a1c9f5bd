"""The event loop of a script's process, in a thread of its own, on which the first attempt of a cached call is made.

Scripts are synchronous and may be anything: threads, servers with a loop of their own, processes that fork. So this
loop is nobody else's: it starts at first use, all sites of the process share it, and it ends with the process. It does
not cross a fork: the child has no thread that runs it, and what was open on it is left alone there, never closed, since
closing would speak on the parent's connections. The child begins with a fresh one.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """A loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fieldpost-background", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work on the loop and wait for its result. An interrupt of the waiting thread cancels the work."""

        async def begin() -> T:
            return await work()

        future = asyncio.run_coroutine_threadsafe(begin(), self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


def background() -> Background:
    """This process's loop, started if need be."""
    global _background  # noqa: PLW0603
    with _lock:
        if _background is None:
            _background = Background()
        return _background


def at_exit(work: Callable[[], None]) -> None:
    """Do this before the process ends, while the loop still runs."""
    atexit.register(work)


_lock = threading.Lock()
_background: Background | None = None
_abandoned: list[Any] = []
"""What a fork left behind: kept, because the garbage collector would close it."""


def abandon(thing: object) -> None:
    """Keep a thing that belongs to the parent's loop from being closed in this process."""
    _abandoned.append(thing)


def _after_fork_in_child() -> None:
    global _background, _lock  # noqa: PLW0603
    _lock = threading.Lock()
    if _background is not None:
        _abandoned.append(_background)
    _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
