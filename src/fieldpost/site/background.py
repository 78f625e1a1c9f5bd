"""An event loop in a background thread of the script's process, for the first attempt of a cached call.

Scripts are synchronous and may use threads, have their own event loop, or fork. So this loop is private: it starts at
first use, all sites of the process share it, and it ends with the process. It does not survive a fork: the child has no
thread that runs it, starts a new one when needed, and never closes connections of the old one, because that would send
data on the parent's connections.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fieldpost-background", daemon=True)
        self._thread.start()

    @property
    def is_present(self) -> bool:
        """Whether this is the loop of this process, not one left behind by a fork."""
        return self is _background

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work on the loop and wait for the result. Interrupting the waiting thread cancels the work."""

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
    """This process's loop, started if necessary."""
    global _background  # noqa: PLW0603
    with _lock:
        if _background is None:
            _background = Background()
        return _background


def at_exit(work: Callable[[], None]) -> None:
    """Run the work before the process ends, while the loop still runs."""
    atexit.register(work)


_lock = threading.Lock()
_background: Background | None = None
_abandoned: list[Any] = []
"""Objects left behind by a fork: kept, because the garbage collector would close them."""


def abandon(thing: object) -> None:
    """Keep an object of the parent's loop from being closed in this process."""
    _abandoned.append(thing)


def _after_fork_in_child() -> None:
    global _background, _lock  # noqa: PLW0603
    _lock = threading.Lock()
    if _background is not None:
        _abandoned.append(_background)
    _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
