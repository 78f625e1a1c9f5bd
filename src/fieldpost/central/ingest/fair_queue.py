"""How fast sites may drain their backlogs, and in which order: turns at the store, and credits.

Theory of operation. Many sites submit at once, above all after an outage. Two things keep that fair and short:

- *Turns.* Only so many items are at the store at a time; the other submits wait here, where waiting costs nothing, and
  whatever else the store is asked for (health reports, commands, dispatching) never stands behind all of them. Who goes
  next is decided by start-time fair queueing: each site has a tag that grows by the items it had stored, and the lowest
  tag goes first. A site that sends large batches, or many, gets no more than one that sends small ones.

- *Credits.* Each ack tells a sender how many items it may have on the way: what the store takes in `AHEAD_S`, by the
  rate seen lately, divided by the sites that are draining, or a batch that is worth sending. So what waits here is
  bounded, in memory and in time, however many sites come back at once. A sender alone gets as much as it can use; while
  the store is in trouble none gets any.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

AHEAD_S = 1.0
"""How much work, in time, may be on its way from all sites together."""
DRAINING_S = 5.0
"""A site that said it has more counts as draining for so long after."""
WORTHWHILE = 100
"""A batch of so many costs little more than a smaller one. So many are granted also where the share is less, since
small batches would make the store look slower than it is, and the shares smaller still,"""
LONGEST_S = 10.0
"""but never more than the store takes in so long: a sender does not wait for ever, and would send again."""
GRANT_MIN = 10
"""No sender is granted less while the store works."""
ITEMS_AT_ONCE = 2000
"""So many items are at the store at a time; one submit always may be."""
SUBMITS_AT_ONCE = 6
"""And so many submits, so that the store's other connections stay free for others."""
SMOOTHING = 0.2


class FairQueue:
    """Who may go to the store, now and next."""

    def __init__(self, items_max: int = ITEMS_AT_ONCE, submits_max: int = SUBMITS_AT_ONCE) -> None:
        self._items_max = items_max
        self._submits_max = submits_max
        self._items = 0
        self._submits = 0
        self._now = 0.0
        """The tag of whoever went last: a site that was away starts from here, and has saved up nothing."""
        self._tags: dict[str, float] = {}
        self._waiting: list[tuple[float, int, int, asyncio.Future[None]]] = []
        self._arrival = count()

    @property
    def items(self) -> int:
        """How many items are at the store."""
        return self._items

    @asynccontextmanager
    async def turn(self, site: str, items: int) -> AsyncIterator[None]:
        """Held while a submit of so many items of this site is at the store."""
        await self._enter(site, items)
        try:
            yield
        finally:
            self._leave(items)

    async def _enter(self, site: str, items: int) -> None:
        start = max(self._now, self._tags.get(site, 0.0))
        self._tags[site] = start + items
        if not self._waiting and self._has_room(items):
            self._go(start, items)
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (start, next(self._arrival), items, called))
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                # Called and gone in the same moment: the turn goes to the next.
                self._leave(items)
            raise

    def _leave(self, items: int) -> None:
        self._items -= items
        self._submits -= 1
        while self._waiting and (self._waiting[0][3].cancelled() or self._has_room(self._waiting[0][2])):
            start, _, next_items, called = heapq.heappop(self._waiting)
            if not called.cancelled():
                self._go(start, next_items)
                called.set_result(None)
        if not self._submits and not self._waiting:
            # Nobody is ahead of anybody any more.
            self._tags.clear()
            self._now = 0.0

    def _go(self, start: float, items: int) -> None:
        self._now = max(self._now, start)
        self._items += items
        self._submits += 1

    def _has_room(self, items: int) -> bool:
        return not self._submits or (self._submits < self._submits_max and self._items + items <= self._items_max)


class Pace:
    """Turns and credits of one node."""

    def __init__(self, credits_max: int, monotonic: Callable[[], float], turns: FairQueue | None = None) -> None:
        self._credits_max = credits_max
        self._monotonic = monotonic
        self._turns = turns or FairQueue()
        self._rate: float | None = None
        self._draining: dict[str, float] = {}

    @asynccontextmanager
    async def storing(self, site: str, items: int, *, has_more: bool) -> AsyncIterator[None]:
        """Around the storing of a submit, in its turn; from what it takes the rate is learnt."""
        if has_more:
            self._draining[site] = self._monotonic()
        else:
            self._draining.pop(site, None)
        async with self._turns.turn(site, items):
            together, began = self._turns.items, self._monotonic()
            yield
            self._learn(together, self._monotonic() - began)

    def credits(self, *, is_failing: bool = False) -> int:
        """How many items a sender may have on the way now."""
        if is_failing:
            return 0
        if self._rate is None:
            return self._credits_max
        share_per_s = self._rate / max(1, self._count_draining())
        granted = max(share_per_s * AHEAD_S, min(WORTHWHILE, share_per_s * LONGEST_S))
        return min(self._credits_max, max(GRANT_MIN, int(granted)))

    def _learn(self, items: int, took_s: float) -> None:
        if items < GRANT_MIN:
            # A handful of items says how long a commit takes, and nothing about how many fit into it.
            return
        rate = items / max(took_s, 0.001)
        self._rate = rate if self._rate is None else self._rate + SMOOTHING * (rate - self._rate)

    def _count_draining(self) -> int:
        since = self._monotonic() - DRAINING_S
        for site in [site for site, at in self._draining.items() if at < since]:
            del self._draining[site]
        return len(self._draining)
