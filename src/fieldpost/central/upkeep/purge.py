"""The purge: deletes rows past their retention, on the leader, in small batches.

Each batch is a separate, short transaction: a slow batch makes the next one smaller, and the purge pauses after each
batch for as long as the batch took. A failure is logged and ends only the purge of that table; the next sweep deletes
the rest.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.store.accounts import identities, logins
from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.purging import BEGINNING, PurgedBatch, PurgeRange
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import retention as events
from fieldpost.central.store.events import routes
from fieldpost.central.store.notifications import retention
from fieldpost.central.store.search import bulk_actions, terms
from fieldpost.central.store.sites import cached_calls, health, intents, switches
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.clock import Clock

log = structlog.get_logger()

BATCH_S = 0.05
"""A batch that takes longer makes the next one smaller."""
BATCH_MIN = 10
LOGIN_RETENTION_DAYS = 7.0
"""How long expired sessions, one-time links and failed logins are kept."""
AGAIN_S = 600.0
"""A failed purge is retried after this time, or after the interval if that is shorter."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A table with its retention and the function that deletes a batch."""

    name: str
    retention_days: float
    purge: Callable[[Connection, PurgeRange], PurgedBatch]


class Purge:
    """The purge of one node; it works while the node leads."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        leader: Leader,
        options: UpkeepOptions | None = None,
        event_retention_days: float = 365.0,
    ) -> None:
        self._store = store
        self._clock = clock
        self._leader = leader
        self._options = o = options or UpkeepOptions()
        # Audit entries and events are deleted only after their notifications, so notifications come first.
        self._kept = (
            _Kept("notifications", o.terminal_retention_days, retention.purge_notifications),
            _Kept("events", event_retention_days, events.purge_events),
            _Kept("event_tombstones", o.tombstone_extra_days, events.TOMBSTONES.purge),
            _Kept("cooldowns", o.sample_retention_days, routes.COOLDOWNS.purge),
            _Kept("audit", o.audit_retention_days, retention.purge_audit),
            _Kept("bulk_actions", o.audit_retention_days, bulk_actions.purge),
            _Kept("tombstones", o.tombstone_retention_days, retention.TOMBSTONES.purge),
            _Kept("samples", o.sample_retention_days, retention.SAMPLES.purge),
            _Kept("nodes", o.node_retention_days, retention.NODES.purge),
            _Kept("cached_calls", o.terminal_retention_days, cached_calls.ENDED.purge),
            _Kept("gone_cached_calls", o.terminal_retention_days, cached_calls.GONE.purge),
            _Kept("intents", o.audit_retention_days, intents.ENDED.purge),
            _Kept("site_switches", o.audit_retention_days, switches.RECORDED.purge),
            _Kept("site_health_samples", o.sample_retention_days, health.SAMPLES.purge),
            _Kept("search_terms", o.terminal_retention_days, terms.purge),
            _Kept("sessions", LOGIN_RETENTION_DAYS, identities.purge_sessions),
            _Kept("login_links", LOGIN_RETENTION_DAYS, logins.LINKS.purge),
            _Kept("login_delays", LOGIN_RETENTION_DAYS, logins.DELAYS.purge),
        )

    async def run(self) -> None:
        """Purge while this node leads, at once and then at every interval, until cancelled."""
        while True:
            await self._leader.elected()
            is_whole = await self.sweep()
            interval_s = self._options.purge_interval_s
            await self._clock.sleep(interval_s if is_whole else min(interval_s, AGAIN_S))

    async def sweep(self) -> bool:
        """Delete all rows past their retention; returns False on a failure or if this node stopped leading."""
        began = self._clock.monotonic()
        deleted: Counter[str] = Counter()
        failed = [kept.name for kept in self._kept if not await self._purge_safely(kept, deleted)]
        log.info(
            "purge.finished",
            **{kept.name: deleted[kept.name] for kept in self._kept},
            failed=failed,
            duration_s=round(self._clock.monotonic() - began, 3),
        )
        return not failed

    async def _purge_safely(self, kept: _Kept, deleted: Counter[str]) -> bool:
        is_done = False
        with logged("purge", "error", table=kept.name):
            is_done = await self._purge(kept, deleted)
        return is_done

    async def _purge(self, kept: _Kept, deleted: Counter[str]) -> bool:
        """Delete batches until nothing is left; returns False if this node stops leading before that."""
        now = await self._store.read(database_time, self._store.now())
        span = PurgeRange(now - timedelta(days=kept.retention_days), BEGINNING, self._options.purge_batch, now)
        while self._leader.is_leader:
            batch, took_s = await self._store.write(self._timed, kept.purge, span)
            deleted[kept.name] += batch.deleted
            if batch.after is None:
                return True
            span = replace(span, after=batch.after, limit=next_limit(span.limit, took_s, self._options.purge_batch))
            await self._clock.sleep(took_s)
        return False

    def _timed(
        self, conn: Connection, purge: Callable[[Connection, PurgeRange], PurgedBatch], span: PurgeRange
    ) -> tuple[PurgedBatch, float]:
        """Delete a batch and measure how long it held its locks, without the time spent in the queue."""
        began = self._clock.monotonic()
        return purge(conn, span), self._clock.monotonic() - began


def next_limit(limit: int, took_s: float, limit_max: int) -> int:
    """The size of the next batch: halved after a slow one, doubled after a fast one."""
    if took_s > BATCH_S:
        return max(min(BATCH_MIN, limit_max), limit // 2)
    return min(limit_max, limit * 2) if took_s < BATCH_S / 4 else limit
