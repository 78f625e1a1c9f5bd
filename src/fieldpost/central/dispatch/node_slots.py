"""The slots of one node: in use now, and the share that each subscription may have (`core.delivery.slots`)."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.store.engine.wake import Wake
from fieldpost.clock import Clock
from fieldpost.core.delivery.outcome import Delivered
from fieldpost.core.delivery.routing import SlotPool
from fieldpost.core.delivery.slots import SlotLimits, SlotUse, fair_share
from fieldpost.core.notification import Status


class NodeSlots:
    """Counts the attempts in progress and divides what is free."""

    def __init__(
        self,
        limits: Mapping[SlotPool, SlotLimits],
        long_s: float,
        clock: Clock,
        running: Mapping[tuple[str, int], RunningAttempt],
    ) -> None:
        self.limits = limits
        self._long_s = long_s
        self._clock = clock
        self._running = running
        self._shares = dict(limits)
        """The limits with the share of a subscription while slots are scarce."""
        self._worked: dict[str, float] = {}
        """When keys with attempts in progress last had a success."""
        self._stalled: set[str] = set()

    def use(self) -> dict[SlotPool, SlotUse]:
        """The slots in use now. Attempts that have become long free theirs, as far as their pool has room."""
        use = {pool: SlotUse() for pool in SlotPool}
        now = self._clock.monotonic()
        for running in self._running.values():
            key = running.delivery_key
            mine = use[running.pool]
            if isinstance(running.outcome, Delivered):
                mine.unwritten += 1
                continue
            mine.oldest[key] = min(running.claimed_monotonic, mine.oldest.get(key, now))
            if running.is_long or now - running.claimed_monotonic >= self._long_s:
                mine.slow.add(key)
                running.is_long = running.is_long or mine.may_move(key, self.limits[running.pool])
            if running.is_long:
                mine.long[key] += 1
            else:
                mine.busy[key] += 1
                if running.claimed.notification.status is Status.RETRYING:
                    mine.retrying[key] += 1
        return use

    def free(self, pool: SlotPool, use: SlotUse) -> int:
        """How many slots the next claim may fill. A claim for ample slots ends where they become scarce."""
        free = use.free(self.limits[pool])
        return min(free, use.ample(self.limits[pool]) or free) if pool is SlotPool.SUBSCRIPTIONS else free

    def next_long_s(self, default_s: float) -> float:
        """How long until the next attempt in progress becomes long."""
        now = self._clock.monotonic()
        waits = (running.claimed_monotonic + self._long_s - now for running in self._running.values())
        return max(0.01, min((wait for wait in waits if wait > 0), default=default_s))

    def divide(self, ready: Collection[str]) -> None:
        """Set the share of a subscription by the keys that have due notifications."""
        limits = self.limits[SlotPool.SUBSCRIPTIONS]
        count = sum(key.startswith(SlotPool.SUBSCRIPTIONS.prefix) for key in ready)
        self._shares[SlotPool.SUBSCRIPTIONS] = replace(limits, per_key=fair_share(limits, count))

    def stalled(self, use: SlotUse) -> set[str]:
        """The subscriptions that get no further slot until one of their attempts ends."""
        self._stalled = use.stalled(self._worked, self._clock.monotonic())
        return self._stalled

    def share(self, pool: SlotPool, use: SlotUse) -> SlotLimits:
        """The limits that hold for the next claim."""
        return self.limits[pool] if use.ample(self.limits[pool]) else self._shares[pool]

    def note_ended(self, ended: Sequence[RunningAttempt]) -> bool:
        """Whether further rows may be due that had no slot, or the rows themselves soon again. Call it once they are
        no longer in progress."""
        now = self._clock.monotonic()
        left = Counter(running.delivery_key for running in self._running.values())
        self._worked |= {one.delivery_key: now for one in ended if isinstance(one.outcome, Delivered)}
        self._worked = {key: at for key, at in self._worked.items() if left[key]}
        busy = left + Counter(one.delivery_key for one in ended)
        return any(
            busy[one.delivery_key] >= self._shares[one.pool].per_key
            or one.delivery_key in self._stalled
            or not isinstance(one.outcome, Delivered)
            for one in ended
        )


async def freed_or_woken(freed: asyncio.Event, wake: Wake, timeout_s: float) -> bool:
    """Wait until a slot is free, or for other work; whether there may be other work."""
    waits = [asyncio.ensure_future(freed.wait()), asyncio.ensure_future(wake.wait(timeout_s))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return waits[1].done()
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
