"""Flow control for submits: fair queueing at the store, and credits for senders.

Theory of operation. Many sites submit at the same time, above all after an outage. Two mechanisms keep that fair and
the latency low:

- *Fair queue.* Only a bounded number of items is at the store at a time. Other submits wait in memory, where waiting
  is free, so that health reports, commands and dispatching do not queue behind them. Start-time fair queueing picks the
  next submit: each site has a tag that grows by the number of items it stored, and the lowest tag goes first. A site
  gains nothing from larger or more batches.

- *Credits.* Each ack grants the sender a number of items in flight: the number that the store handles in `AHEAD_S` at
  its recent rate, divided by the number of draining sites, but at least a worthwhile batch. This bounds the queue, in
  memory and in time, however many sites reconnect at the same time. A lone sender gets as many as it can use; no
  sender gets any while the store fails.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

AHEAD_S = 1.0
"""Seconds of store work that all sites together may have in flight."""
DRAINING_S = 5.0
"""How long a site counts as draining after it reported a backlog."""
WORTHWHILE = 100
"""A batch of this size costs little more than a smaller one. It is granted even if the fair share is less: small
batches lower the measured rate of the store, which would shrink the shares further."""
LONGEST_S = 10.0
"""But never grant more than the store handles in this time: the sender would time out and send again."""
GRANT_MIN = 10
"""The smallest grant while the store works."""
ITEMS_AT_ONCE = 2000
"""The most items at the store at a time; a single submit is always admitted."""
SUBMITS_AT_ONCE = 6
"""The most submits at the store at a time, so that connections stay free for other work."""
SMOOTHING = 0.2
LARGE_BATCH = 100
"""A batch of this size implies that its sender has more."""


class FairQueue:
    """Admits submits to the store in fair order."""

    def __init__(self, items_max: int = ITEMS_AT_ONCE, submits_max: int = SUBMITS_AT_ONCE) -> None:
        self._items_max = items_max
        self._submits_max = submits_max
        self._items = 0
        self._submits = 0
        self._now = 0.0
        """The tag of the last admitted submit. A site that was idle starts here; idle time earns no credit."""
        self._tags: dict[str, float] = {}
        self._waiting: list[tuple[float, int, int, asyncio.Future[None]]] = []
        self._arrival = count()

    @property
    def items(self) -> int:
        """How many items are at the store now."""
        return self._items

    @asynccontextmanager
    async def admit(self, site: str, items: int) -> AsyncIterator[None]:
        """Wait for admission of a submit of `items` items, and hold it while the submit is at the store."""
        await self._enter(site, items)
        try:
            yield
        finally:
            self._leave(items)

    async def _enter(self, site: str, items: int) -> None:
        start = max(self._now, self._tags.get(site, 0.0))
        self._tags[site] = start + items
        if not self._waiting and self._has_capacity(items):
            self._start(start, items)
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (start, next(self._arrival), items, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                # Cancelled right after admission: pass the capacity on to the next submit.
                self._leave(items)
            raise

    def _leave(self, items: int) -> None:
        self._items -= items
        self._submits -= 1
        while self._waiting and (self._waiting[0][3].cancelled() or self._has_capacity(self._waiting[0][2])):
            start, _, next_items, admitted = heapq.heappop(self._waiting)
            if not admitted.cancelled():
                self._start(start, next_items)
                admitted.set_result(None)
        if not self._submits and not self._waiting:
            # Idle: tags matter only while sites compete.
            self._tags.clear()
            self._now = 0.0

    def _start(self, start: float, items: int) -> None:
        self._now = max(self._now, start)
        self._items += items
        self._submits += 1

    def _has_capacity(self, items: int) -> bool:
        return not self._submits or (self._submits < self._submits_max and self._items + items <= self._items_max)


class Pace:
    """Fair queue and credits of one node."""

    def __init__(self, credits_max: int, monotonic: Callable[[], float], queue: FairQueue | None = None) -> None:
        self._credits_max = credits_max
        self._monotonic = monotonic
        self._queue = queue or FairQueue()
        self._rate: float | None = None
        self._draining: dict[str, float] = {}

    @asynccontextmanager
    async def storing(self, site: str, items: int, *, has_more: bool) -> AsyncIterator[None]:
        """Context in which to store a submit: waits for admission, then measures the store's rate."""
        if has_more:
            self._draining[site] = self._monotonic()
        else:
            self._draining.pop(site, None)
        async with self._queue.admit(site, items):
            concurrent_items, started = self._queue.items, self._monotonic()
            yield
            self._measure(concurrent_items, self._monotonic() - started)

    def credits(self, *, is_failing: bool = False) -> int:
        """How many items a sender may have in flight now."""
        if is_failing:
            return 0
        if self._rate is None:
            return self._credits_max
        share_per_s = self._rate / max(1, self._count_draining())
        granted = max(share_per_s * AHEAD_S, min(WORTHWHILE, share_per_s * LONGEST_S))
        return min(self._credits_max, max(GRANT_MIN, int(granted)))

    def _measure(self, items: int, took_s: float) -> None:
        if items < GRANT_MIN:
            # A few items measure the duration of a commit, not the throughput.
            return
        rate = items / max(took_s, 0.001)
        self._rate = rate if self._rate is None else self._rate + SMOOTHING * (rate - self._rate)

    def _count_draining(self) -> int:
        since = self._monotonic() - DRAINING_S
        for site in [site for site, at in self._draining.items() if at < since]:
            del self._draining[site]
        return len(self._draining)
