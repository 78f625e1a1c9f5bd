"""Purge of events after their retention, in bounded batches.

An event stays as long as any of its notifications, which refer to its payload. A purged event leaves a tombstone, so
that the same event published again is still a duplicate.
"""

from datetime import timedelta

from sqlalchemy import Connection, Integer

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.purging import DatedTable, PurgedBatch, PurgeRange
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.events.subscriptions import keep_publishers_out

TOMBSTONES = DatedTable("event_tombstones", "purged_at")

_IS_UNUSED = "not exists (select 1 from notifications n where n.event_id = events.event_id)"
_window = Statement(
    """
    select max(created_at) as until, count(*) as size from (
        select created_at from events where created_at >= :after and created_at < :cutoff
        order by created_at limit :limit
    ) as oldest
    """,
    result={"until": Moment, "size": Integer},
)
_unused = Statement(
    f"select event_id from events where created_at >= :after and created_at <= :until and {_IS_UNUSED}",
    result={"event_id": Id},
)
_bury = Statement(
    f"""
    insert into event_tombstones (event_id, source, digest, purged_at)
    select event_id, source, digest, :purged_at from events where event_id {{any:ids}} and {_IS_UNUSED}
    """,
    lists={"ids": "id"},
)
_delete = Statement(
    f"delete from events where event_id {{any:ids}} and {_IS_UNUSED} returning event_id",
    lists={"ids": "id"},
    result={"event_id": Id},
)


def purge_events(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete those of the oldest events that no longer have a notification; each leaves a tombstone.

    A batch reads all events of a range of time, whether it deletes them or not, so that events which must stay do not
    make a batch long. Slightly more than `limit` where events share a time.
    """
    window = _window.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit)[0]
    if window.until is None:
        return PurgedBatch(0, None)
    ids = [row.event_id for row in _unused.run(conn, after=span.after, until=window.until)]
    deleted = 0
    if ids:
        # A publisher that waited for the deletion of its event would not see the tombstone and record the event again.
        keep_publishers_out(conn)
        _bury.run(conn, ids=ids, purged_at=span.now)
        deleted = len(_delete.run(conn, ids=ids))
    return PurgedBatch(deleted, window.until + timedelta(microseconds=1) if window.size >= span.limit else None)
