"""The change feed: notifies open pages that rows changed, so that they reload.

Theory of operation. One query per second for the whole node, and none while no page listens. An event names only the
topic that changed: a page reloads itself with the same request and the same rights as when it was opened. A page that
misses an event loses nothing, since pages also reload from time to time.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import structlog

from fieldpost.core.errors import Unavailable

log = structlog.get_logger()

INTERVAL_S = 1.0
KEEP_ALIVE_S = 15.0
"""How often an idle listener gets an empty event, so that proxies keep the connection."""
LISTENERS_MAX = 500

ChangeTokens = Mapping[str, str]


class ChangeFeed:
    """The feed of one node. `query` returns a token per topic, which differs after each change."""

    def __init__(self, query: Callable[[], Awaitable[ChangeTokens]]) -> None:
        self._query = query
        self._tokens: ChangeTokens = {}
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self.listeners = 0
        """The number of listening pages."""
        self._polling: asyncio.Task[None] | None = None

    def check_room(self) -> None:
        """Raise Unavailable when the maximum number of pages is listening; the page then polls."""
        if self.listeners >= LISTENERS_MAX:
            raise Unavailable("change_feed.full", f"{LISTENERS_MAX} pages are already listening to this node")

    async def changes(self) -> AsyncGenerator[frozenset[str]]:
        """The changed topics of each event; an empty set after KEEP_ALIVE_S without changes."""
        self.listeners += 1
        if self._polling is None:
            self._tokens = {}
            self._polling = asyncio.create_task(self._poll(), name="change_feed")
        try:
            seen = self._tokens
            while not self._closing.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await self._changed.wait()
                now = self._tokens
                # The first tokens are the baseline, not a change.
                yield frozenset(topic for topic in now if seen and now[topic] != seen.get(topic))
                seen = now
        finally:
            self.listeners -= 1
            if self.listeners == 0 and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    def close(self) -> None:
        """End all listeners, because the node stops."""
        self._closing.set()
        self._changed.set()

    async def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                tokens = await self._query()
                if tokens != self._tokens:
                    self._tokens = tokens
                    # Release the present waiters; they wait on the new event next.
                    self._changed.set()
                    self._changed = asyncio.Event()
            except Unavailable:
                pass  # the next poll tries again
            except Exception:
                log.exception("change_feed.faulted")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._closing.wait()
