"""Held notifications: hold them in batches, probe the channel with one, release gradually, park the old ones."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.dispatch.view import DispatchView
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit, claims, records
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.breaker import Breaker, BreakerState, give_back_probe, is_blocked, next_probe, take_probe
from fieldpost.core.ids import new_ids
from fieldpost.core.lifecycle import parked

log = structlog.get_logger()

HOLD_BATCH = 2000
PARK_BATCH = 200
PARK_EVERY_S = 60.0


class Holds:
    """Handles notifications behind breakers; called by the dispatcher whenever it reloads its view."""

    def __init__(self, store: Store, node_id: str, options: DispatchOptions) -> None:
        self._store = store
        self._node_id = node_id
        self._options = options
        self._parked_at = float("-inf")

    async def tend(self, view: DispatchView, monotonic: float, mine: Sequence[str]) -> list[Claimed]:
        """Hold, release and park notifications as needed; returns the claimed probes of open breakers."""
        probes = []
        for breaker in tuple(view.breakers.values()):  # a result written concurrently may add one
            if is_blocked(breaker):
                await self._hold_due(view, breaker)
        for key in view.held:
            breaker = view.breakers.get(key, Breaker(key))
            if is_blocked(breaker):
                probes += await self._probe(breaker, view.now, mine)
            else:
                await self._release(breaker)
        if view.held and monotonic - self._parked_at >= PARK_EVERY_S:
            self._parked_at = monotonic
            await self._park_old(view.now)
        return probes

    async def give_back_probes(self, flights: Sequence[RunningAttempt]) -> None:
        """Return unsent probes, so that the next node may probe."""
        for flight in flights:
            if flight.is_probe and flight.breaker_key is not None:
                await self._give_back(flight.breaker_key, flight.now())

    async def renew_probes(self, flights: Sequence[RunningAttempt]) -> None:
        """Renew running probes together with their claims."""
        for flight in flights:
            if flight.is_probe and flight.breaker_key is not None:
                await self._renew(flight.breaker_key, flight.now() + timedelta(seconds=self._options.lease_s))

    async def _give_back(self, key: str, now: datetime) -> None:
        await self._store.write(breaker_rows.change, key, lambda b: give_back_probe(b, self._node_id, now))

    async def _renew(self, key: str, until: datetime) -> None:
        await self._store.write(
            breaker_rows.change,
            key,
            lambda b: replace(b, probe_until=until) if b.probe_owner == self._node_id else b,
        )

    async def _hold_due(self, view: DispatchView, breaker: Breaker) -> None:
        """Hold one batch per call: these keys are not claimed anyway, and other work should not wait."""
        keys = view.keys_behind(breaker.key)
        if not keys:
            return
        reason = f"the breaker is open: {breaker.last_error}"
        until = next_probe(breaker, self._options.breaker, view.now)
        held = await self._store.write(
            breaker_rows.hold_keys, keys, breaker.key, reason, until, HOLD_BATCH, now=self._store.now()
        )
        if held:
            log.info("rows.held", breaker=breaker.key, count=held)

    async def _probe(self, breaker: Breaker, now: datetime, mine: Sequence[str]) -> list[Claimed]:
        taken = await self._store.write(
            breaker_rows.change, breaker.key, lambda b: take_probe(b, self._node_id, now, self._options.lease_s)
        )
        if taken is None or taken.state is not BreakerState.HALF_OPEN:
            return []
        claimed = await self._store.write(
            claims.claim_probe,
            self._node_id,
            breaker.key,
            lease_s=self._options.lease_s,
            now=self._store.now(),
            mine=mine,
        )
        if claimed:
            log.info("breaker.probed", breaker=breaker.key, notification_id=claimed[0].notification.notification_id)
        else:
            await self._give_back(breaker.key, now)
        return claimed

    async def _release(self, breaker: Breaker) -> None:
        count = await self._store.write(
            breaker_rows.release_held,
            breaker.key,
            breaker.failures == 0,
            self._options.release_batch,
            now=self._store.now(),
        )
        if count:
            log.info("rows.released", breaker=breaker.key, count=count)

    async def _park_old(self, now: datetime) -> None:
        event_ids = new_ids(now, os.urandom(10 * PARK_BATCH))
        count = await self._store.write(_park_old, self._node_id, now, self._options.hold_max, event_ids)
        if count:
            log.warning("rows.parked_after_hold", count=count)


def _park_old(conn: Connection, node_id: str, now: datetime, hold_max: timedelta, event_ids: Sequence[str]) -> int:
    entries = []
    found = records.held_since_before(conn, now - hold_max, len(event_ids))
    for n, event_id in zip(found, event_ids, strict=False):
        error = f"held longer than {hold_max}: {n.held_reason}"
        transition = replace(parked(n, error, n.targets, now), last_attempt_at=n.last_attempt_at)
        if records.change(conn, n, transition, now):
            entries.append(
                audit.NotificationEntry(
                    event_id,
                    n.notification_id,
                    now,
                    AuditKind.NOTIFY_DELIVER,
                    AuditStatus.PARKED,
                    SYSTEM,
                    None,
                    error,
                )
            )
    audit.add_for_notifications(conn, node_id, entries)
    return len(entries)
