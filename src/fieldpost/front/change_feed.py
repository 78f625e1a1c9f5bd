"""The change feed: notifies open pages that rows changed, so that they reload.

Theory of operation. One query per second for the whole node, and none while no page listens. An event names only the
topic that changed: a page reloads itself with the same request and the same rights as when it was opened. A page
carries the tokens from before it was rendered and listens from there, so that it hears of changes made in between. A
page that misses an event loses nothing, since pages also reload from time to time.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from hashlib import blake2s

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

    async def tokens(self) -> ChangeTokens:
        """The tokens as of now, or moments old while pages listen."""
        return self._tokens if self._polling is not None and self._tokens else await self._read()

    async def changes(self, since: ChangeTokens | None = None) -> AsyncGenerator[frozenset[str]]:
        """The topics changed since these tokens, or from now on; an empty set after KEEP_ALIVE_S without changes."""
        self.listeners += 1
        if self._polling is None:
            self._tokens = {}
            self._polling = asyncio.create_task(self._poll(), name="change_feed")
        try:
            seen = since or self._tokens
            if since and self._tokens:
                yield _changed(seen, self._tokens)
                seen = self._tokens
            while not self._closing.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await self._changed.wait()
                now = self._tokens
                # Without earlier tokens the first ones are the baseline, not a change.
                yield _changed(seen, now) if seen else frozenset()
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

    async def _read(self) -> ChangeTokens:
        """The tokens, short enough for a URL."""
        found = await self._query()
        return {topic: blake2s(text.encode(), digest_size=8).hexdigest() for topic, text in found.items()}

    async def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                tokens = await self._read()
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


def _changed(before: ChangeTokens, after: ChangeTokens) -> frozenset[str]:
    return frozenset(topic for topic in after if after[topic] != before.get(topic))
