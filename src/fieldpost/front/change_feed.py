"""The change_feed: tells the pages that people have open that something changed, so that they ask for what is new.

Theory of operation. One look a second for the whole node, and none while nobody listens. What changed is not told, only
where: a page fetches itself anew, by the same way and with the same rights as when it was opened. A listener that
misses a beat loses nothing, since pages also ask by themselves every now and then.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import structlog

from fieldpost.core.errors import Unavailable

log = structlog.get_logger()

INTERVAL_S = 1.0
KEEP_ALIVE_S = 15.0
"""So often a listener hears that there is nothing, so that what lies between keeps the connection."""
LISTENERS_MAX = 500

Marks = Mapping[str, str]


class ChangeFeed:
    """One for a node. `look` gives a mark for each topic, which differs when something there has changed."""

    def __init__(self, look: Callable[[], Awaitable[Marks]]) -> None:
        self._look = look
        self._marks: Marks = {}
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self.listeners = 0
        """How many pages listen."""
        self._beating: asyncio.Task[None] | None = None

    def check_room(self) -> None:
        """Unavailable when so many listen already that this page had better ask by itself."""
        if self.listeners >= LISTENERS_MAX:
            raise Unavailable("change_feed.full", f"{LISTENERS_MAX} pages listen to this node already")

    async def changes(self) -> AsyncGenerator[frozenset[str]]:
        """The topics in which something changed, as it changes; none at all after a while of silence."""
        self.listeners += 1
        if self._beating is None:
            self._marks = {}
            self._beating = asyncio.create_task(self._beat(), name="change_feed")
        try:
            seen = self._marks
            while not self._closing.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await self._changed.wait()
                now = self._marks
                # The first look finds nothing new: it is what later ones are held against.
                yield frozenset(topic for topic in now if seen and now[topic] != seen.get(topic))
                seen = now
        finally:
            self.listeners -= 1
            if self.listeners == 0 and self._beating is not None:
                self._beating.cancel()
                self._beating = None

    def close(self) -> None:
        """The node stops: let all listeners go."""
        self._closing.set()
        self._changed.set()

    async def _beat(self) -> None:
        while not self._closing.is_set():
            try:
                marks = await self._look()
                if marks != self._marks:
                    self._marks = marks
                    # Whoever waits now is let go, and waits for the next one then.
                    self._changed.set()
                    self._changed = asyncio.Event()
            except Unavailable:
                pass  # the next beat looks again
            except Exception:
                log.exception("change_feed.faulted")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._closing.wait()
