"""Expiry of parked webhook notifications: at `[webhooks] expire_parked_at`, on the leader, in small batches.

It deletes rows as the purge does, with a tombstone each, and records how many in one audit entry.
"""

import os
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.purging import BEGINNING, PurgeRange
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit, retention
from fieldpost.central.upkeep.leader import Leader
from fieldpost.clock import Clock
from fieldpost.core.audit import SYSTEM, AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.ids import new_id

BATCH = 500
PAUSE_S = 0.05

log = structlog.get_logger()


class ParkedExpiry:
    """The expiry of one node; it works while the node leads."""

    def __init__(self, store: Store, clock: Clock, leader: Leader, options: WebhookOptions | None = None) -> None:
        self._store = store
        self._clock = clock
        self._leader = leader
        self._options = options or WebhookOptions()

    async def run(self) -> None:
        """Scan at the set times until cancelled; returns at once if that is never."""
        scan = self._options.scan_time
        while scan is not None:
            now = self._clock.now()
            await self._clock.sleep((scan.next_after(now) - now).total_seconds())
            if self._leader.is_leader:
                with logged("expiry", "error"):
                    await self.sweep()

    async def sweep(self) -> int:
        """Delete all that have been parked for too long; how many."""
        now = await self._store.read(database_time, self._store.now())
        days = self._options.expire_parked_after_days
        span = PurgeRange(now - timedelta(days=days), BEGINNING, BATCH, now)
        count = 0
        while self._leader.is_leader:
            batch = await self._store.write(retention.expire_parked_webhooks, span)
            count += batch.deleted
            if batch.after is None:
                break
            span = replace(span, after=batch.after)
            await self._clock.sleep(PAUSE_S)
        if count:
            await self._store.write(audit.add, [_entry(count, days, now)])
            log.info("webhooks.expired", count=count)
        return count


def _entry(count: int, days: float, now: datetime) -> AuditEntry:
    return AuditEntry(
        event_id=new_id(now, os.urandom(10)),
        occurred_at=now,
        kind=AuditKind.OPERATOR_ACTION,
        status=AuditStatus.SUBMITTED,
        channel=AuditChannel.NOTIFICATION,
        actor=SYSTEM,
        target="webhooks",
        request_summary="webhooks.expire",
        extra={"count": count, "after_days": days},
    )
