"""The dispatcher: claims due notifications, runs a bounded number of attempts and has their results written.

Theory of operation. A sweep claims until nothing is due or no slot is free; deliveries run concurrently. Slots limit
the attempts in flight per node and per delivery key; a slot is free again when the result of its attempt is written.
Ingest, an operator's Retry, a closing breaker and a due time wake the dispatcher; `interval_s` is only the fallback.
Every node dispatches; claims keep them apart.

Invariants: a claim ends with a written result, a release or the expiry of its lease; nothing is sent under a claim
that was not renewed for half a lease (`RunningAttempt.gate`); a stopping node claims nothing more.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

import structlog

from fieldpost.central.dispatch.attempt import RunningAttempt, attempt
from fieldpost.central.dispatch.holds import Holds
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.dispatch.results import Results
from fieldpost.central.dispatch.view import DispatchView, load_view
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import claims, due, lists
from fieldpost.central.store.notifications.claims import Claimed, Share
from fieldpost.clock import Clock
from fieldpost.core.adapter import Adapter, ClaimLost
from fieldpost.core.breaker import Breaker
from fieldpost.core.errors import Unavailable
from fieldpost.core.lanes import Lane, retry_first
from fieldpost.core.meter import Meter, Unmetered
from fieldpost.core.notification import Status
from fieldpost.core.outcome import Delivered, PermanentFailure

log = structlog.get_logger()


class Dispatcher:
    """The dispatcher of one central node."""

    def __init__(
        self,
        store: Store,
        adapters: Mapping[str, Adapter],
        node_id: str,
        clock: Clock,
        rng: random.Random,
        options: DispatchOptions | None = None,
        keyring: Keyring | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._node_id = node_id
        self._clock = clock
        self._options = options or DispatchOptions()
        self._keyring = keyring or Keyring()
        self._meter = meter or Unmetered()
        self._results = Results(store, node_id, clock, rng, self._options, self._ended, self._meter)
        self._holds = Holds(store, node_id, self._options)
        self._view = DispatchView(is_stale=True)
        self._flights: dict[tuple[str, int], RunningAttempt] = {}
        self._busy: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._after = dict.fromkeys(Lane, "")
        self._warned: set[tuple[str, int, str]] = set()
        self._is_stopping = False

    async def run(self) -> None:
        """Sweep until cancelled or stopped. On cancellation, claims are released within the grace time."""
        async with self.running():
            while not self._is_stopping:
                await self._store.wake.wait(await self._sweep_safely())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write results and renew leases in the background; on exit, release all claims."""
        helpers = [asyncio.create_task(self._results.run()), asyncio.create_task(self._renew_all())]
        try:
            yield
        finally:
            await asyncio.shield(self._wind_up(helpers))

    def stop(self) -> None:
        """Claim nothing more; `run` returns after the grace time at the latest."""
        self._is_stopping = True
        self._freed.set()
        self._store.wake.set()

    async def sweep(self) -> None:
        """Claim and start due notifications until none is left; attempts are still in flight on return."""
        while not self._is_stopping:
            await self._refresh()
            if self._view.has_suspects:
                await self._attempt_suspects()
            free = await self._free_slots()
            if await self._claim(free) < free:
                return

    async def idle(self) -> None:
        """Wait until no attempt is in flight."""
        while self._flights:
            await self._freed_or_stopping()

    async def _freed_or_stopping(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    async def _sweep_safely(self) -> float:
        """Sweep, logging any failure; returns how long to wait for the next sweep."""
        began = self._clock.monotonic()
        try:
            await self.sweep()
            self._meter.swept(self._clock.monotonic() - began)
            return await self._wait_s()
        except Unavailable as error:
            log.error("sweep.failed", error=error.message)
        except Exception:
            log.exception("sweep.faulted")
        return min(self._options.interval_s, 1.0)

    async def _refresh(self) -> None:
        """Reload lists, channels and breakers and handle held notifications, if the view is too old."""
        age_s = self._clock.monotonic() - self._view.seen_at
        if age_s < self._options.refresh_s and not self._view.is_stale:
            return
        seen_at = self._clock.monotonic()
        self._view = await self._store.read(load_view, seen_at, now=self._store.now())
        self._view.warn_of_clamped(log, self._warned)
        for probe in await self._holds.tend(self._view, self._clock.monotonic(), self._mine()):
            self._start(probe, is_probe=True)

    async def _free_slots(self) -> int:
        while (free := self._options.slots - len(self._flights)) <= 0 and not self._is_stopping:
            await self._freed_or_stopping()
        return 0 if self._is_stopping else min(free, self._options.batch_size)

    async def _claim(self, free: int) -> int:
        """Claim and start at most `free` notifications; returns how many."""
        if free <= 0:
            return 0
        taken = await self._store.write(
            claims.claim_lanes,
            self._node_id,
            self._shares(free),
            free=free,
            after=dict(self._after),
            lease_s=self._options.lease_s,
            now=self._store.now(),
            mine=self._mine(),
        )
        count = sum(map(len, taken.values()))
        for lane, claimed in taken.items():
            # Continue after the last key served, so that no key starves; start over when all keys were visited.
            self._after[lane] = claimed[-1].notification.delivery_key if claimed and count == free else ""
            for one in claimed:
                self._start(one)
            if claimed:
                self._meter.claimed(lane.value, len(claimed))
        return count

    def _shares(self, free: int) -> list[Share]:
        """The retry lane's reserved share comes first, of the node's slots and of each key's: with a single list, its
        retries would otherwise leave no slots to first attempts. Either lane may use the remaining slots."""
        per_key = self._options.slots_per_key
        retrying = Counter(
            n.delivery_key for f in self._flights.values() if (n := f.claimed.notification).status is Status.RETRYING
        )
        first = retry_first(per_key, per_key, 0)
        used = {k: first - retry_first(per_key, per_key - n, retrying[k]) for k, n in self._busy.items()}
        # A key behind an open breaker counts as full: its notifications are held in batches, not claimed one by one.
        blocked = self._view.blocked_keys
        busy = dict(self._busy) | dict.fromkeys(blocked, per_key)
        own = retry_first(self._options.slots, free, retrying.total())
        return [
            Share(lane=Lane.RETRY, limit=own, per_key=first, busy=used | dict.fromkeys(blocked, first)),
            Share(lane=Lane.FRESH, limit=free, per_key=per_key, busy=busy),
            Share(lane=Lane.RETRY, limit=free, per_key=per_key, busy=busy),
        ]

    async def _attempt_suspects(self) -> None:
        """Attempt notifications whose node stopped during two attempts, one at a time with no other attempt running."""
        while not self._is_stopping and await self._store.read(due.has_suspects, now=self._store.now()):
            await self._refresh()
            if self._flights:  # reloading the view may have started a probe
                await self._freed_or_stopping()
                continue
            for one in await self._store.write(
                claims.claim_lone, self._node_id, lease_s=self._options.lease_s, now=self._store.now()
            ):
                log.warning("attempt.lone", notification_id=one.notification.notification_id)
                self._start(one)
            while self._flights and not self._is_stopping:
                await self._freed_or_stopping()
        self._view.has_suspects = False

    def _start(self, claimed: Claimed, *, is_probe: bool = False) -> None:
        n = claimed.notification
        self._busy[n.delivery_key] += 1
        route = self._view.route(n.list_name)
        policy = self._view.policy(route, self._options.hold_max)
        opened = self._view.opened(route, self._keyring)
        flight = RunningAttempt(claimed, route, policy, self._clock, self._options.lease_s, is_probe, opened)
        self._flights[flight.key] = flight
        self._meter.flying(len(self._flights))
        flight.task = asyncio.create_task(self._run_attempt(flight))

    async def _run_attempt(self, flight: RunningAttempt) -> None:
        try:
            if isinstance(flight.route, PermanentFailure):
                await self._resolve_again(flight)
            flight.outcome = await attempt(flight, self._adapters, self._view.breakers)
        except ClaimLost as error:
            log.warning("attempt.abandoned", notification_id=flight.key[0], error=str(error))
            await self._give_back([flight], str(error))
        else:
            flight.duration_s = self._clock.monotonic() - flight.claimed_monotonic
            self._results.add(flight)

    async def _resolve_again(self, flight: RunningAttempt) -> None:
        """Resolve again with fresh data: the list may be newer than the view."""
        try:
            fresh = DispatchView(directory=await self._store.read(lists.directory))
        except Unavailable as error:
            raise ClaimLost(error.message) from error
        flight.route = fresh.route(flight.claimed.notification.list_name)
        flight.policy = fresh.policy(flight.route, self._options.hold_max)
        flight.opened = fresh.opened(flight.route, self._keyring)

    def _ended(self, flights: Sequence[RunningAttempt], breakers: dict[str, Breaker]) -> None:
        for flight in flights:
            if self._flights.pop(flight.key, None) is not None:
                key = flight.claimed.notification.delivery_key
                if self._busy[key] >= self._options.slots_per_key:
                    # More notifications of this key may be due that found no slot.
                    self._store.wake.nudge()
                self._busy[key] -= 1
        self._busy = +self._busy
        self._meter.flying(len(self._flights))
        if any(not isinstance(flight.outcome, Delivered) for flight in flights):
            # They may be due before the planned wake-up, which was computed while they were in flight.
            self._store.wake.nudge()
        if self._view.take_in(breakers):
            self._store.wake.set()
        self._freed.set()

    def _mine(self) -> list[str]:
        """Ids in flight on this node, which must not be claimed again even if their lease has expired.

        If this machine's clock decides on leases, a clock step may expire any; PostgreSQL's clock is trusted.
        """
        now = self._clock.monotonic()
        is_ours = self._store.now() is not None
        half_s = self._options.lease_s / 2
        return [f.key[0] for f in self._flights.values() if is_ours or now - f.renewed_at > half_s]

    async def _give_back(self, flights: Sequence[RunningAttempt], reason: str) -> None:
        try:
            await self._store.write(
                claims.release, self._node_id, [f.key for f in flights], reason, now=self._store.now()
            )
            await self._holds.give_back_probes(flights)
        except Unavailable as error:  # the leases expire, since they are no longer renewed
            log.error("release.failed", count=len(flights), error=error.message)
        finally:
            self._ended(flights, {})

    async def _renew_all(self) -> None:
        """Renew the leases of attempts in flight; an attempt without renewal is stopped by its gate."""
        while True:
            await self._clock.sleep(self._options.renew_s)
            try:
                await self.renew()
            except Unavailable as error:
                log.error("renewal.failed", error=error.message)
            except Exception:
                log.exception("renewal.faulted")

    async def renew(self) -> None:
        flights = list(self._flights.values())
        if not flights:
            return
        at = self._clock.monotonic()
        kept = await self._store.write(
            claims.renew,
            self._node_id,
            [f.key for f in flights],
            lease_s=self._options.lease_s,
            now=self._store.now(),
        )
        for flight in flights:
            if flight.key[0] in kept:
                flight.renewed_at = at
        await self._holds.renew_probes(flights)

    async def _wait_s(self) -> float:
        """Seconds until the next notification is due, at most the interval."""
        due_at = await self._store.read(due.next_due, now=self._store.now())
        waits = [self._options.interval_s]
        moments = [m for m in (due_at, self._view.next_hold_end()) if m is not None]
        since_look = timedelta(seconds=self._clock.monotonic() - self._view.seen_at)
        for moment in moments:
            seconds = (moment - self._view.now - since_look).total_seconds()
            # Notifications already due wait for a slot of their key or for a breaker; either wakes the dispatcher.
            waits.append(seconds if seconds > 0 else min(self._options.refresh_s, self._options.interval_s))
        return max(min(waits), 0.001)

    async def _wind_up(self, helpers: Sequence[asyncio.Task[None]]) -> None:
        """Finish attempts within the grace time and release the others."""
        self._is_stopping = True
        tasks = [f.task for f in self._flights.values() if f.task is not None and not f.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=self._options.grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self._results.apply_waiting()
        # Do not release a claim whose outcome could not be written: it was sent. Its lease expires as after a crash.
        unsent = [f for f in self._flights.values() if f.outcome is None]
        if unsent:
            await self._give_back(unsent, "the node stopped")
