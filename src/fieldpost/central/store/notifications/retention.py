"""Purge of notifications and audit entries after their retention, in bounded batches.

Every DELETE repeats the whole condition, so that a notification that an operator has just retried stays. A batch starts
after the last one (`after`), so that it does not scan dead rows again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.purging import DatedTable, PurgedBatch, PurgeRange
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.notifications import wholes
from fieldpost.core.events.subscription import WEBHOOK_TYPE

_expired = Statement(
    """
    select notification_id, terminal_at as at from notifications
    where terminal_at >= :after and terminal_at < :cutoff
    order by terminal_at limit :limit {locked}
    """,
    result={"notification_id": Id, "at": Moment},
)
_expired_webhooks = Statement(
    """
    select notification_id, terminal_at as at from notifications
    where terminal_at >= :after and terminal_at < :cutoff and status = 'parked' and type = :type
    order by terminal_at limit :limit {locked}
    """,
    result={"notification_id": Id, "at": Moment},
)
# With a list of ids the planner must not use the index by terminal time: its statistics may be empty for 500,000 rows.
_IS_EXPIRED = "notification_id {any:ids} and coalesce(terminal_at, null) < :cutoff"
_add_tombstones = Statement(
    f"""
    insert into tombstones (notification_id, source_site_id, digest, status, terminal_at, purged_at, whole_id)
    select notification_id, source_site_id, digest, status, terminal_at, {{now}}, whole_id
    from notifications where {_IS_EXPIRED}
    on conflict (notification_id) do nothing
    """,
    lists={"ids": "id"},
)
_delete = Statement(
    f"delete from notifications where {_IS_EXPIRED} returning notification_id, whole_id",
    lists={"ids": "id"},
    result={"notification_id": Id, "whole_id": Id},
)

# Entries about a notification stay as long as its row, at any age.
_old_entries = Statement(
    """
    select event_id, occurred_at as at from audit
    where occurred_at >= :after and occurred_at < :cutoff
        and not exists (select 1 from notifications n where n.notification_id = audit.correlation_id)
        and not exists (select 1 from wholes w where w.whole_id = audit.correlation_id)
    order by occurred_at limit :limit
    """,
    result={"event_id": Id, "at": Moment},
)
_delete_entries = Statement(
    "delete from audit where event_id {any:ids} returning event_id", lists={"ids": "id"}, result={"event_id": Id}
)

# Triggers refuse every other DELETE. The seals state how far the purge has come, so that younger entries must exist.
_begin_purge = Statement(
    """
    update audit_purges set purged_to = greatest(purged_to, cast(:cutoff as timestamptz))
    returning set_config('fieldpost.is_purging', 'true', true)
    """,
    sqlite="update audit_purges set purged_to = max(coalesce(purged_to, 0), :cutoff), is_purging = true",
)
_end_purge = Statement(
    "select set_config('fieldpost.is_purging', 'false', true)", sqlite="update audit_purges set is_purging = false"
)


def purge_notifications(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete rows that became terminal before the cutoff, with their targets and attempts; leave tombstones. A whole
    goes with its last part.

    The first query locks the rows; rows that another transaction has locked are left for the next purge.
    """
    return _delete_found(conn, _expired.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit), span)


def expire_parked_webhooks(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete webhook notifications that were parked before the cutoff, as the purge does."""
    found = _expired_webhooks.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit, type=WEBHOOK_TYPE)
    return _delete_found(conn, found, span)


def _delete_found(conn: Connection, found: Sequence[Row[Any]], span: PurgeRange) -> PurgedBatch:
    ids = [row.notification_id for row in found]
    if not ids:
        return PurgedBatch(0, None)
    _add_tombstones.run(conn, ids=ids, cutoff=span.cutoff, now=span.now)
    deleted = _delete.run(conn, ids=ids, cutoff=span.cutoff)
    wholes.purge_empty(conn, {row.whole_id for row in deleted if row.whole_id is not None}, span.now)
    return PurgedBatch(len(deleted), _next(found, span))


def purge_audit(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete entries from before the cutoff, except those of notifications that still have a row."""
    found = _old_entries.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit)
    if not found:
        return PurgedBatch(0, None)
    _begin_purge.run(conn, cutoff=span.cutoff)
    deleted = _delete_entries.run(conn, ids=[row.event_id for row in found])
    _end_purge.run(conn)
    return PurgedBatch(len(deleted), _next(found, span))


# A tombstone outlives the audit entry of its send. Without it a repeated send would be a new row, whose own entry
# conflicts with the old one.
TOMBSTONES = DatedTable(
    "tombstones", "purged_at", unless="exists (select 1 from audit where event_id = tombstones.notification_id)"
)
SAMPLES = DatedTable("samples", "taken_at")
NODES = DatedTable("nodes", "heartbeat_at")


def _next(found: Sequence[Row[Any]], span: PurgeRange) -> datetime | None:
    return found[-1].at if len(found) == span.limit else None
