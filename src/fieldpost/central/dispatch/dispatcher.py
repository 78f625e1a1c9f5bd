"""The dispatcher: claims due notifications, runs their attempts within limits, and has the results written.

Theory of operation. A sweep claims until nothing is due or no slot is free; deliveries run beside it. Slots limit the
attempts in progress on a node, per pool and per delivery key (`core.slots`); a slot is free again after a delivery,
when the result of any other attempt is written, or when the attempt takes long. Ingest, Retry, a closing breaker and a
due time wake the dispatcher; `interval_s` is only the fallback. Every node dispatches; claims keep them apart.

Invariants: a claim ends by a written result, by release, or when its lease expires; nothing is sent under a claim that
was not renewed for half a lease (`RunningAttempt.gate`); a stopping node claims nothing more.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.attempt import RunningAttempt, attempt, event_to_send
from fieldpost.central.dispatch.claiming import claim, plan
from fieldpost.central.dispatch.crash_log import CrashLog
from fieldpost.central.dispatch.equipment import equipment_of
from fieldpost.central.dispatch.holds import Holds
from fieldpost.central.dispatch.host_limits import HostLimits
from fieldpost.central.dispatch.node_slots import NodeSlots, freed_or_woken
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.dispatch.paths import Paths, keys_of, load_directory
from fieldpost.central.dispatch.receipts import ReceiptKeeper
from fieldpost.central.dispatch.recent_events import RecentEvents
from fieldpost.central.dispatch.results import Results
from fieldpost.central.dispatch.subscription_keeper import SubscriptionKeeper
from fieldpost.central.dispatch.turn_taking import TurnTaker
from fieldpost.central.rendering.composer import Composer, NoRenderer
from fieldpost.central.rendering.drafts import DraftCompleter
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import claims, due
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.central.store.notifications.due import NextWork
from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import Adapter, ClaimLost
from fieldpost.core.delivery.breaker import Breaker
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.delivery.retry import RetryPolicy
from fieldpost.core.delivery.routing import SUBSCRIPTION_RETRY, SlotPool, refuse_part, resolve, traits_of
from fieldpost.core.delivery.slots import SlotLimits, SlotUse, last_in_walk
from fieldpost.core.errors import Unavailable
from fieldpost.core.meter import Meter, Unmetered

log = structlog.get_logger()

WORK_KNOWN_S = 0.02
"""How long a sweep with filled claims goes on without another query for lanes with due rows (half a claim's time)."""


class Dispatcher:
    """One for a central node."""

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
        webhooks: WebhookOptions | None = None,
        crash_log: CrashLog | None = None,
        composer: Composer | None = None,
        abonnement_retry: RetryPolicy = SUBSCRIPTION_RETRY,
        public_url: str = "",
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._node_id = node_id
        self._clock = clock
        self._options = options or DispatchOptions()
        self._webhooks = webhooks or WebhookOptions()
        self._meter = meter or Unmetered()
        self._crash_log = crash_log or CrashLog()
        self._drafts = DraftCompleter(store, node_id, composer or Composer(NoRenderer(), adapters))
        self._results = Results(store, node_id, clock, rng, self._ended, self._meter)
        self._holds = Holds(store, node_id, self._options)
        self._events = RecentEvents(store)
        self._defaults = replace(
            self._options.path_defaults,
            subscription_breaker=self._webhooks.breaker,
            abonnement_retry=abonnement_retry,
            types={name: traits_of(adapter) for name, adapter in adapters.items()},
        )
        keys = keyring or Keyring()
        self._paths = Paths(self._defaults, keys)
        self._receipts = ReceiptKeeper(store, node_id, adapters, keys, self._defaults, rng, public_url)
        self._keeper = SubscriptionKeeper(store, node_id, self._webhooks, self._defaults)
        self._running: dict[tuple[str, int], RunningAttempt] = {}
        per_key = self._options.slots_per_key
        limits = {
            SlotPool.LISTS: SlotLimits(self._options.slots, per_key),
            SlotPool.SUBSCRIPTIONS: SlotLimits(self._webhooks.slots, per_key),
        }
        self._slots = NodeSlots(limits, self._options.long_s, clock, self._running)
        self._turns = TurnTaker(store, node_id, self._paths, self._slots, self._options.lease_s)
        self._hosts = HostLimits(self._webhooks.host_max)
        self._freed = asyncio.Event()
        self._after = {pool: dict.fromkeys(Lane, "") for pool in SlotPool}
        self._work = NextWork()
        self._is_stopping = False

    async def run(self) -> None:
        """Sweep until cancelled or stopped; when cancelled, give back all claims within the grace time."""
        async with self.running():
            while not self._is_stopping:
                wait_s = await self._sweep_safely()
                if not self._is_stopping:  # the sweep may have consumed the wake-up of `stop`
                    await self._store.wake.wait(wait_s)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write results and renew leases beside the sweeps; at the end give everything back."""
        await self._crash_log.record(self._store)
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
        """Claim and start due notifications until none is left; returns with attempts still in progress."""
        known_until = 0.0
        while not self._is_stopping:
            await self._refresh()
            if self._paths.snapshot.has_suspects:
                await self._attempt_suspects()
            self._freed.clear()  # before counting the slots, so that one that becomes free meanwhile is not missed
            is_known = self._clock.monotonic() < known_until
            if not is_known:
                self._work = await self._next_work()
                known_until = self._clock.monotonic() + WORK_KNOWN_S
            use = self._slots.use()
            turns = await self._turns.take(use[SlotPool.LISTS], self._options.batch_size, self._database_time())
            count, is_full = len(turns), False
            if turns:
                await self._start_all(turns, has_turn=True)
                use = self._slots.use()
            for pool, lanes in self._work.waiting.items():
                free = min(self._slots.free(pool, use[pool]), self._options.batch_size)
                is_full |= free == 0
                if free > 0 and not self._is_stopping:
                    claimed = await self._claim(pool, lanes, use[pool], free)
                    count += claimed
                    if claimed < free:
                        known_until = 0.0
            if not count and not is_full:
                if not is_known:
                    return
                known_until = 0.0
            elif not count:
                long_s = self._slots.next_long_s(self._options.interval_s)
                if await freed_or_woken(self._freed, self._store.wake, long_s):
                    known_until = 0.0

    async def idle(self) -> None:
        """Wait until nothing is in progress."""
        while self._running:
            await self._freed_or_stopping()

    async def _freed_or_stopping(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    async def _sweep_safely(self) -> float:
        """A sweep whose failure is logged and ends nothing else; returns how long to wait for the next one."""
        began = self._clock.monotonic()
        try:
            await self.sweep()
            self._meter.swept(self._clock.monotonic() - began)
            return self._wait_s()
        except Unavailable as error:
            log.error("sweep.failed", error=error.message)
        except Exception:
            log.exception("sweep.faulted")
        return min(self._options.interval_s, 1.0)

    async def _refresh(self) -> None:
        """Learn of changed paths and breakers, and tend held rows, if the last refresh is too old."""
        age_s = self._clock.monotonic() - self._paths.seen_at
        if age_s < self._options.refresh_s and not self._paths.is_stale:
            return
        seen_at = self._clock.monotonic()
        self._paths.take(await self._store.read(self._paths.load, now=self._store.now()), seen_at)
        self._turns.ask_again()
        self._slots.divide(self._paths.snapshot.ready)
        self._hosts.learn(self._paths.hosts())
        # Receivers that hang must leave slots to those that work, so probes get half of the free ones.
        free = self._slots.use()[SlotPool.SUBSCRIPTIONS].free(self._slots.limits[SlotPool.SUBSCRIPTIONS])
        probes = await self._holds.tend(
            self._paths,
            self._clock.monotonic(),
            self._mine(),
            probes_max=free // 2,
            put_off=self._hosts.without_room,
        )
        await self._start_all(probes, is_probe=True)
        await self._keeper.tend(self._paths.snapshot.version, self._clock.monotonic())
        await self._receipts.tend()

    async def _next_work(self) -> NextWork:
        """The claimable rows, after timed rows that are due were made claimable."""
        work = await self._store.read_one(due.next_work, now=self._store.now())
        if work.timed_due is not None and work.timed_due <= self._database_time() and await self._holds.promote():
            work = await self._store.read_one(due.next_work, now=self._store.now())
        return work

    def _database_time(self) -> datetime:
        return self._paths.now + timedelta(seconds=self._clock.monotonic() - self._paths.seen_at)

    async def _claim(self, pool: SlotPool, lanes: Sequence[Lane], use: SlotUse, free: int) -> int:
        """Claim and start at most `free` notifications in these lanes of the pool; 0 if there is nothing to claim."""
        order = plan(pool, lanes, use, free, self._after[pool], self._paths, self._slots, self._hosts)
        taken = await claim(self._store, self._node_id, order, lease_s=self._options.lease_s, mine=self._mine())
        count = sum(map(len, taken.values()))
        for lane, claimed in taken.items():
            # The walk continues behind the last key served, so that no key starves; from the start when it saw all.
            keys = {one.notification.delivery_key for one in claimed}
            self._after[pool][lane] = last_in_walk(keys, order.after[lane]) if keys and count == free else ""
            if claimed:
                await self._start_all(claimed)
                self._meter.claimed(lane.value, len(claimed))
        found = Counter(one.notification.delivery_key for claimed in taken.values() for one in claimed)
        return max(count, self._hosts.note_claimed(order.hosts, found, is_all=count < free))

    async def _attempt_suspects(self) -> None:
        """Rows whose attempts ended twice with their node are attempted one at a time, with nothing beside them."""
        while not self._is_stopping and await self._store.read(due.has_suspects, now=self._store.now()):
            await self._refresh()
            if self._running:  # the refresh may have started a probe
                await self._freed_or_stopping()
                continue
            for one in await self._store.write(
                claims.claim_lone, self._node_id, lease_s=self._options.lease_s, now=self._store.now()
            ):
                log.warning("attempt.lone", notification_id=one.notification.notification_id)
                with self._crash_log.during(one):
                    await self._start_all([one])
                    while self._running and not self._is_stopping:
                        await self._freed_or_stopping()
        self._paths.snapshot.has_suspects = False

    async def _start_all(self, claimed: Sequence[Claimed], *, is_probe: bool = False, has_turn: bool = False) -> None:
        """Start an attempt for each; those whose host is at its limit are given back."""
        await self._paths.prepare(self._store, {key for one in claimed for key in keys_of(one.notification)})
        drafts = await self._drafts.complete(claimed)
        events = await self._events.these({i for one in claimed if (i := event_to_send(one)) is not None})
        ready = [drafts.get(one.notification.notification_id, (one, None)) for one in claimed]
        complete, has_turn = [one for one, _ in ready], has_turn or is_probe
        equipment = await equipment_of(self._store, self._paths, self._receipts, complete, has_turn=has_turn)
        surplus = []
        for one, failed in ready:
            path = self._paths.of_notification(one.notification)
            event, opened = events.get(one.notification.event_id or ""), self._paths.opened(path)
            running = RunningAttempt(one, path, self._clock, self._options.lease_s, is_probe, event, opened)
            running.draft_outcome = failed
            equipment.give(running)
            if not self._hosts.take(running):
                surplus.append(running)
                continue
            self._running[running.key] = running
            running.task = asyncio.create_task(self._deliver(running))
        self._meter.flying(len(self._running))
        if surplus:
            await self._give_back(surplus, "as many deliveries to this host are in progress as there may be")

    async def _deliver(self, running: RunningAttempt) -> None:
        try:
            if isinstance(running.path, PermanentFailure):
                await self._resolve_again(running)
            running.outcome = await attempt(running, self._adapters, self._paths.breakers, self._results.record_reached)
        except ClaimLost as error:
            log.warning("attempt.abandoned", notification_id=running.key[0], error=str(error))
            await self._give_back([running], str(error))
        else:
            running.duration_s = self._clock.monotonic() - running.claimed_monotonic
            self._results.add(running)

    async def _resolve_again(self, running: RunningAttempt) -> None:
        """A list may be newer than the cache: read it before parking a notification for a missing one."""
        n = running.claimed.notification
        try:
            directory = await self._store.read(load_directory, keys_of(n))
        except Unavailable as error:
            raise ClaimLost(error.message) from error
        running.path = refuse_part(directory, n) or resolve(directory, n.delivery_key, self._defaults)
        running.opened = self._paths.opened(running.path)

    def _ended(self, ended: Sequence[RunningAttempt], breakers: dict[str, Breaker]) -> None:
        is_room = self._hosts.give_back([one for one in ended if self._running.pop(one.key, None) is not None])
        self._meter.flying(len(self._running))
        # More rows of its key may have been due all the while without a slot, or the row itself is due again soon.
        if is_room | self._slots.note_ended(ended) | self._turns.note(ended):
            self._store.wake.nudge()
        self._keeper.note(ended, breakers)
        self._paths.is_stale |= self._keeper.has_work
        if self._paths.take_in(breakers) or self._keeper.has_work:
            self._store.wake.set()
        self._freed.set()

    def _mine(self) -> list[str]:
        """The ids in progress here, which must not be claimed again should their lease have expired.

        Where this machine's clock judges leases, a step of the clock may end any; PostgreSQL's clock is trusted.
        """
        now = self._clock.monotonic()
        is_ours = self._store.now() is not None
        half_s = self._options.lease_s / 2
        return [f.key[0] for f in self._running.values() if is_ours or now - f.renewed_at > half_s]

    async def _give_back(self, running: Sequence[RunningAttempt], reason: str) -> None:
        try:
            await self._store.write(
                claims.release, self._node_id, [one.key for one in running], reason, now=self._store.now()
            )
            await self._holds.give_back_probes(running)
        except Unavailable as error:  # then the leases expire, since nothing renews them any more
            log.error("release.failed", count=len(running), error=error.message)
        finally:
            self._ended(running, {})

    async def _renew_all(self) -> None:
        """Renew the leases of attempts in flight; an attempt without a renewed lease is stopped by its gate."""
        while True:
            await self._clock.sleep(self._options.renew_s)
            try:
                await self.renew()
            except Unavailable as error:
                log.error("renewal.failed", error=error.message)
            except Exception:
                log.exception("renewal.faulted")

    async def renew(self) -> None:
        flights = list(self._running.values())
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

    def _wait_s(self) -> float:
        """How long to wait for the next sweep: until a row becomes due, at most the interval."""
        waits = [self._options.interval_s]
        if self._work.waiting:
            # Rows that wait for a slot or a breaker: the end of either wakes the dispatcher, in most cases.
            waits.append(self._options.refresh_s)
        now = self._database_time()
        moments = (self._work.timed_due, self._paths.next_hold_end())
        seconds = [(moment - now).total_seconds() for moment in moments if moment is not None]
        waits += [wait if wait > 0 else self._options.refresh_s for wait in seconds]
        if self._turns.next_at is not None:  # a turn that became due during the sweep is taken at once
            waits.append((self._turns.next_at - now).total_seconds())
        return max(min(waits), 0.001)

    async def _wind_up(self, helpers: Sequence[asyncio.Task[None]]) -> None:
        """Finish attempts in flight within the grace time and release the rest."""
        self._is_stopping = True
        await self._receipts.close()
        tasks = [f.task for f in self._running.values() if f.task is not None and not f.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=self._options.grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self._results.apply_waiting()
        # An outcome that could not be written even now is not an unsent claim: its lease expires as after a crash.
        unsent = [f for f in self._running.values() if f.outcome is None]
        if unsent:
            await self._give_back(unsent, "the node stopped")
