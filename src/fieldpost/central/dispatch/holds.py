"""Rows behind breakers: held in sets, probed one per breaker, released in batches, parked when too old."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Connection

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.dispatch.paths import PAUSE_KEY, Paths
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit, claims, due, records, turns
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.delivery.breaker import (
    CHANNEL_KEY,
    Breaker,
    BreakerState,
    give_back_probe,
    is_blocked,
    note_probe,
    take_probe,
)
from fieldpost.core.delivery.lifecycle import held_too_long
from fieldpost.core.delivery.routing import SlotPool, pool_of
from fieldpost.core.ids import new_ids

log = structlog.get_logger()

HOLD_BATCH = 1500
PROMOTE_BATCH = 2000
PARK_BATCH = 200
PARK_EVERY_S = 60.0


class Holds:
    """Used by the dispatcher at each refresh."""

    def __init__(self, store: Store, node_id: str, options: DispatchOptions) -> None:
        self._store = store
        self._node_id = node_id
        self._options = options
        self._parked_at = float("-inf")

    async def tend(
        self,
        paths: Paths,
        monotonic: float,
        mine: Sequence[str],
        *,
        probes_max: int = 1000,
        put_off: Callable[[Collection[str]], Collection[str]] = lambda due: (),
    ) -> list[Claimed]:
        """Hold, release and park rows as the breakers require; returns rows claimed to probe open breakers with: of
        every channel whose probe is due, and of at most `probes_max` subscriptions, without those that are `put_off`.
        """
        await self._hold_due(paths)
        held = {key: paths.breakers.get(key, Breaker(key)) for key in paths.snapshot.held}
        due = [breaker for breaker in held.values() if _is_probe_due(breaker, paths.now)]
        of_subscriptions = [breaker.key for breaker in due if pool_of(breaker.key) is SlotPool.SUBSCRIPTIONS]
        later = set(put_off(set(of_subscriptions)))
        later |= set([key for key in of_subscriptions if key not in later][probes_max:])
        probes = await self._probe([breaker for breaker in due if breaker.key not in later], paths.now, mine)
        resumed = [Breaker(PAUSE_KEY + key) for key in paths.snapshot.paused if not paths.is_paused(key)]
        # After a block the next step is released when the rows of the last one have ended.
        ready = set(paths.snapshot.ready)
        closed = [b for b in held.values() if not is_blocked(b) and not (_step_size(b) and b.key in ready)]
        await self._release([*resumed, *closed])
        if held and monotonic - self._parked_at >= PARK_EVERY_S:
            self._parked_at = monotonic
            await self._park_old(paths.now)
        return probes

    async def promote(self) -> int:
        """Make timed rows claimable whose time has come; how many. A batch at a time, since claims come between."""
        return await self._store.write(due.promote, PROMOTE_BATCH, now=self._store.now())

    async def give_back_probes(self, running: Sequence[RunningAttempt]) -> None:
        """A probe that was not sent leaves its breaker open for the next."""
        rules = {
            one.breaker_key: partial(give_back_probe, owner=self._node_id, now=one.now())
            for one in running
            if one.is_probe and one.breaker_key is not None
        }
        if rules:
            await self._store.write(breaker_rows.change_many, rules)

    async def renew_probes(self, running: Sequence[RunningAttempt]) -> None:
        """A probe in progress keeps its breaker's only probe for as long as its claim."""
        rules = {
            one.breaker_key: partial(self._renewed, until=one.now() + timedelta(seconds=self._options.lease_s))
            for one in running
            if one.is_probe and one.breaker_key is not None
        }
        if rules:
            await self._store.write(breaker_rows.change_many, rules)

    def _renewed(self, breaker: Breaker, until: datetime) -> Breaker:
        return replace(breaker, probe_until=until) if breaker.probe_owner == self._node_id else breaker

    async def _hold_due(self, paths: Paths) -> None:
        """A batch at each refresh: claims skip these keys anyway, and other work should not wait for more."""
        found: dict[bool, list[tuple[str, str, str, datetime]]] = {False: [], True: []}
        spacing: dict[str, int] = {}
        queued: list[str] = []
        for key in sorted(paths.blocked()):
            if (held := paths.hold_of(key)) is not None:
                kind, hold, reason = held
                if kind.is_queue:
                    queued.append(key)
                    continue
                found[kind.is_timed].append((key, hold.by, reason, hold.until))
                spacing[key] = paths.spacing(key, kind)
        if queued:
            await self._store.write(turns.enqueue, queued, HOLD_BATCH, now=self._store.now())
        for is_timed, holds in found.items():
            if not holds:
                continue
            count = await self._store.write(
                breaker_rows.hold_rows,
                holds,
                HOLD_BATCH,
                is_timed=is_timed,
                spacing=spacing,
                now=self._store.now(),
            )
            if count:
                log.info("rows.held", by=len({hold[1] for hold in holds}), count=count)

    async def _probe(self, breakers: Sequence[Breaker], now: datetime, mine: Sequence[str]) -> list[Claimed]:
        if not breakers:
            return []
        rule = partial(take_probe, owner=self._node_id, now=now, lease_s=self._options.lease_s)
        probes: list[Claimed] = await self._store.write(
            _take_probes,
            self._node_id,
            {breaker.key: rule for breaker in breakers},
            now,
            lease_s=self._options.lease_s,
            mine=mine,
            db_now=self._store.now(),
        )
        for one in probes:
            n = one.notification
            log.info("breaker.probed", breaker=n.held_by, notification_id=n.notification_id)
        return probes

    async def _release(self, breakers: Sequence[Breaker]) -> None:
        if not breakers:
            return
        count = 0
        for size in {_step_size(breaker) for breaker in breakers}:
            step = [breaker for breaker in breakers if _step_size(breaker) == size]
            limit = min(size or self._options.release_batch, self._options.release_batch)
            count += await self._store.write(breaker_rows.release_held, step, limit, now=self._store.now())
        if count:
            log.info("rows.released", breakers=len(breakers), count=count)

    async def _park_old(self, now: datetime) -> None:
        event_ids = new_ids(now, os.urandom(10 * PARK_BATCH))
        count = await self._store.write(_park_old, self._node_id, now, self._options.hold_max, event_ids)
        if count:
            log.warning("rows.parked_after_hold", count=count)


def _step_size(breaker: Breaker) -> int:
    """How many rows to release at once; 0 for a full batch, as behind the breaker of a channel."""
    return 0 if breaker.key.startswith(CHANNEL_KEY) else breaker.release_size


def _is_probe_due(breaker: Breaker, now: datetime) -> bool:
    return is_blocked(breaker) and take_probe(breaker, "", now, 0) is not None


def _take_probes(
    conn: Connection,
    node_id: str,
    rules: Mapping[str, partial[Breaker | None]],
    now: datetime,
    *,
    lease_s: float,
    mine: Sequence[str],
    db_now: datetime | None,
) -> list[Claimed]:
    """Take the probes of these breakers and one held row for each; a probe without a row is given back."""
    changed = breaker_rows.change_many(conn, rules)
    taken = {key: b.probed_key for key, b in changed.items() if b.state is BreakerState.HALF_OPEN}
    if not taken:
        return []
    claimed = claims.claim_probes(conn, node_id, taken, lease_s=lease_s, now=db_now, mine=mine)
    probed = {str(one.notification.held_by): one.notification.delivery_key for one in claimed}
    after: dict[str, partial[Breaker]] = {
        key: partial(give_back_probe, owner=node_id, now=now) for key in taken if key not in probed
    }
    # A subscription is alone behind its breaker.
    after |= {key: partial(note_probe, delivery_key=of_row) for key, of_row in probed.items() if key != of_row}
    breaker_rows.change_many(conn, after)
    return claimed


def _park_old(conn: Connection, node_id: str, now: datetime, hold_max: timedelta, event_ids: Sequence[str]) -> int:
    entries = []
    found = records.held_since_before(conn, now - hold_max, len(event_ids))
    for n, event_id in zip(found, event_ids, strict=False):
        parked = held_too_long(n, n.held_reason or "", n.targets, hold_max, now)
        transition = replace(parked, last_attempt_at=n.last_attempt_at)
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
                    transition.last_error,
                )
            )
    audit.add_for_notifications(conn, node_id, entries)
    return len(entries)
