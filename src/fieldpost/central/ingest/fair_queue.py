"""Flow control for submits: fair queueing at the store, and credits for senders.

Theory of operation. Many sites submit at the same time, above all after an outage. Three mechanisms keep that fair and
the latency low:

- *Fair queue.* Only a bounded number of items is at the store at a time. Other submits wait in memory, where waiting
  is free, so that health reports, commands and dispatching do not queue behind them. Start-time fair queueing picks the
  next submit: each site has a tag that grows by the number of items it stored, and the lowest tag goes first. A site
  gains nothing from larger or more batches.

- *Shared transactions.* Submits that wait are stored together, up to `GROUP_ITEMS` items in a transaction, since a
  transaction costs as much as a hundred rows. If it fails, each is stored alone: a submit cannot fail another one.

- *Credits.* Each ack grants the sender a number of items in flight: the number that the store handles in `AHEAD_S` at
  its recent rate, divided by the number of draining sites, but at least a worthwhile batch. This bounds the queue, in
  memory and in time, however many sites reconnect at the same time. A lone sender gets as many as it can use; no
  sender gets any while the store fails.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar, cast

from fieldpost.central.store.engine.batcher import answer_all

K = TypeVar("K")
T = TypeVar("T")

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
GROUPS_AT_ONCE = 6
"""The most transactions at a time, so that connections stay free for other work."""
SMALL_GROUPS = 2
"""Beyond this many transactions at a time, small submits wait for others to share one."""
GROUP_ITEMS = 500
"""The most items of several submits in one transaction."""
SMOOTHING = 0.2
LARGE_BATCH = 100
"""A batch of this size implies that its sender has more."""


class FairQueue(Generic[K, T]):
    """Admits submits to the store in fair order; those that wait share a transaction.

    `store` stores several submits in one transaction, in this order, and returns a result for each.
    """

    def __init__(
        self,
        store: Callable[[Sequence[K]], Awaitable[Sequence[T]]],
        items_max: int = ITEMS_AT_ONCE,
        groups_max: int = GROUPS_AT_ONCE,
    ) -> None:
        self._store = store
        self._items_max = items_max
        self._groups_max = groups_max
        self._items = 0
        self._groups = 0
        self._now = 0.0
        """The tag of the last admitted submit. A site that was idle starts here; idle time earns no credit."""
        self._tags: dict[str, float] = {}
        self._waiting: list[_WaitingSubmit[K, T]] = []
        self._waiting_items = 0
        self._arrival = count()
        self._is_starting = False
        self._running: set[asyncio.Task[None]] = set()

    @property
    def items(self) -> int:
        """How many items are at the store now."""
        return self._items

    async def submit(self, site: str, items: int, content: K) -> T:
        """The result of `store` for this submit of `items` items, in one transaction with other waiting ones.

        Cancelling the caller withdraws a submit that waits; once its transaction has started, it is stored.
        """
        return await self._enter(site, items, content)

    @asynccontextmanager
    async def admit(self, site: str, items: int) -> AsyncIterator[None]:
        """Wait for admission of work on `items` items in a separate transaction, and hold it during that work."""
        turn = self._enter(site, items, None)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave(items)  # cancelled right after admission
            raise
        try:
            yield
        finally:
            self._leave(items)

    def _enter(self, site: str, items: int, content: K | None) -> "asyncio.Future[T]":
        start = max(self._now, self._tags.get(site, 0.0))
        self._tags[site] = start + items
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, _WaitingSubmit(start, next(self._arrival), items, content, answer))
        self._waiting_items += items
        self._start_soon()
        return answer

    def _start_soon(self) -> None:
        """In the next turn of the event loop, so that submits that arrive together are stored together."""
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start_waiting)

    def _start_waiting(self) -> None:
        self._is_starting = False
        while group := self._next_group():
            self._now = max(self._now, group[-1].start)
            items = sum(one.items for one in group)
            self._items += items
            self._groups += 1
            if group[0].content is None:
                group[0].answer.set_result(cast(T, None))
            else:
                task = asyncio.create_task(self._store_group(group, items), name="submits")
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _store_group(self, group: "list[_WaitingSubmit[K, T]]", items: int) -> None:
        try:
            await answer_all(self._store, [(cast(K, one.content), one.answer) for one in group])
        finally:
            self._leave(items)

    def _leave(self, items: int) -> None:
        self._items -= items
        self._groups -= 1
        self._start_soon()
        if not self._groups and not self._waiting:
            # Idle: tags matter only while sites compete.
            self._tags.clear()
            self._now = 0.0

    def _next_group(self) -> "list[_WaitingSubmit[K, T]]":
        """Take the submits for the next transaction from the queue; none if they should wait."""
        group: list[_WaitingSubmit[K, T]] = []
        items = 0
        while self._waiting:
            first = self._waiting[0]
            if not first.answer.cancelled():
                if not (self._may_join(group, items, first) if group else self._may_start(first)):
                    break
                group.append(first)
                items += first.items
            heapq.heappop(self._waiting)
            self._waiting_items -= first.items
        return group

    def _may_start(self, first: "_WaitingSubmit[K, T]") -> bool:
        if not self._groups:
            return True
        if self._groups >= self._groups_max or self._items + first.items > self._items_max:
            return False
        # A few small submits wait for more, unless they would be the only transaction beside another.
        return first.content is None or self._groups < SMALL_GROUPS or self._waiting_items >= WORTHWHILE

    def _may_join(self, group: "list[_WaitingSubmit[K, T]]", items: int, other: "_WaitingSubmit[K, T]") -> bool:
        is_shared = group[0].content is not None and other.content is not None
        return is_shared and items + other.items <= min(GROUP_ITEMS, self._items_max - self._items)


@dataclass(order=True, slots=True)
class _WaitingSubmit(Generic[K, T]):
    start: float
    arrival: int
    items: int = field(compare=False)
    content: K | None = field(compare=False)
    """None for work in a separate transaction."""
    answer: asyncio.Future[T] = field(compare=False)


class Pace(Generic[K, T]):
    """Fair queue and credits of one node."""

    def __init__(
        self,
        credits_max: int,
        monotonic: Callable[[], float],
        store: Callable[[Sequence[K]], Awaitable[Sequence[T]]],
        **limits: int,
    ) -> None:
        self._credits_max = credits_max
        self._monotonic = monotonic
        self._store = store
        self._queue = FairQueue(self._store_measured, **limits)
        self._rate: float | None = None
        self._draining: dict[str, float] = {}

    async def submit(self, site: str, items: int, content: K, *, has_more: bool) -> T:
        """The result of storing a submit, together with others that wait."""
        self._note_backlog(site, has_more)
        return await self._queue.submit(site, items, content)

    @asynccontextmanager
    async def storing(self, site: str, items: int, *, has_more: bool) -> AsyncIterator[None]:
        """Context in which to store something else: waits for admission, then measures the store's rate."""
        self._note_backlog(site, has_more)
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

    async def _store_measured(self, group: Sequence[K]) -> Sequence[T]:
        concurrent_items, started = self._queue.items, self._monotonic()
        results = await self._store(group)
        self._measure(concurrent_items, self._monotonic() - started)
        return results

    def _note_backlog(self, site: str, has_more: bool) -> None:
        if has_more:
            self._draining[site] = self._monotonic()
        else:
            self._draining.pop(site, None)

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
