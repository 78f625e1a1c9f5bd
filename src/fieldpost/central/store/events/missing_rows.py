"""Notifications that a subscription missed: created later, parked at first."""

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import Statement
from fieldpost.core.events.subscription import WEBHOOK_TYPE

_create_parked = Statement(
    """
    insert into notifications (notification_id, event_id, list_name, delivery_key, type, subject, body, status,
        source_site_id, digest, created_at, terminal_at, cycle_started_at, last_error)
    select u.notification_id, e.event_id, :name, :key, :type, e.topic, '', 'parked',
        e.source, e.digest, :at, :at, :at, :reason
    from {rows} join events e on e.event_id = u.event_id
    where not exists (select 1 from tombstones t where t.notification_id = u.notification_id)
    order by u.notification_id
    on conflict (notification_id) do nothing
    returning notification_id
    """,
    rows={"event_id": "id", "notification_id": "id"},
    result={"notification_id": Id},
)
_audit_created = Statement(
    """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id, actor,
        target)
    select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
        source_site_id, source_site_id, list_name
    from notifications where notification_id {any:ids}
    """,
    lists={"ids": "id"},
)
_tombstones = Statement(
    "select notification_id from tombstones where notification_id {any:ids}",
    lists={"ids": "id"},
    result={"notification_id": Id},
)


def create_parked(
    conn: Connection, delivery_key: str, name: str, missing: Mapping[str, str], reason: str, now: datetime
) -> set[str]:
    """Create parked notifications for these events (event id by notification id), unless they exist or were purged."""
    rows = [(event_id, notification_id) for notification_id, event_id in sorted(missing.items())]
    if not rows:
        return set()
    given = {"type": WEBHOOK_TYPE, "key": delivery_key, "name": name, "reason": reason, "at": now}
    created = {row.notification_id for row in _create_parked.run(conn, rows, **given)}  # type: ignore[arg-type]
    _audit_created.run(conn, ids=sorted(created))
    return created


def count_tombstones(conn: Connection, ids: Collection[str]) -> int:
    """How many of these notifications were purged."""
    return len(_tombstones.run(conn, ids=list(ids))) if ids else 0
