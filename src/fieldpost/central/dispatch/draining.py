"""Draining: the waiting notifications of a disabled subscription are parked, those of a removed one discarded."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.events import subscriptions
from fieldpost.central.store.notifications import audit, live_rows, records
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.delivery import lifecycle
from fieldpost.core.events.subscription import Subscription, SubscriptionState, subscription_key
from fieldpost.core.ids import new_ids


def drain(conn: Connection, subscription_id: str, node_id: str, limit: int, *, now: datetime | None) -> int:
    """Park or discard a batch; how many. When none is left, not even in flight, the subscription is drained."""
    found = subscriptions.get(conn, subscription_id)
    if found is None or not found.is_draining:
        return 0
    key, at = subscription_key(subscription_id), database_time(conn, now)
    waiting = live_rows.waiting(conn, key, limit, now=now)
    if waiting:
        return _end(conn, found, waiting, node_id, at)
    if not live_rows.has_any(conn, key):
        subscriptions.mark_drained(conn, subscription_id)
    return 0


def _end(conn: Connection, subscription: Subscription, waiting: Sequence[str], node_id: str, at: datetime) -> int:
    why = f": {subscription.state_reason}" if subscription.state_reason else ""
    reason = f"the subscription is {subscription.state.value}{why}"
    by = subscription.state_by or SYSTEM
    seen = records.without_bodies(conn, waiting)
    changes = [
        (n, replace(lifecycle.parked(n, reason, n.targets, at), last_attempt_at=n.last_attempt_at))
        for n in seen.values()
    ]
    parked = records.change_many(conn, changes, at)
    ids = new_ids(at, os.urandom(10 * 2 * len(parked)))  # in order: parked comes before discarded
    _audit(conn, ids, parked, node_id, at, AuditStatus.PARKED, by, reason)
    if subscription.state is SubscriptionState.REMOVED:
        again = records.without_bodies(conn, sorted(parked))
        discarded = records.change_many(conn, [(n, lifecycle.discard(n, at)) for n in again.values()], at)
        _audit(conn, ids[len(parked) :], discarded, node_id, at, AuditStatus.DISCARDED, by, reason)
    return len(parked)


def _audit(
    conn: Connection,
    event_ids: Sequence[str],
    changed: set[str],
    node_id: str,
    at: datetime,
    status: AuditStatus,
    by: str,
    reason: str,
) -> None:
    kind = AuditKind.NOTIFY_DELIVER if status is AuditStatus.PARKED else AuditKind.OPERATOR_ACTION
    entries = [
        audit.NotificationEntry(event_id, notification_id, at, kind, status, by, None, reason)
        for event_id, notification_id in zip(event_ids, sorted(changed), strict=False)
    ]
    audit.add_for_notifications(conn, node_id, entries)
