"""Deleting what has been kept long enough, in bounded batches.

Every DELETE carries its whole condition itself, so that what an operator brought back a moment ago stays. A batch goes
on behind the last one (`after`), so that it does not walk again over what is gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row

from fieldpost.central.store.statement import Statement
from fieldpost.central.store.types import Id, Moment

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
BATCH_MAX = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows a batch may delete: those from `after` to before the cutoff, the oldest first, so many at most."""

    cutoff: datetime
    after: datetime
    limit: int
    now: datetime
    """The database's time when the purge began."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch came to."""

    deleted: int
    after: datetime | None
    """Where the next batch goes on; None when nothing was left for one."""


_doomed = Statement(
    """
    select notification_id, terminal_at as at from notifications
    where terminal_at >= :after and terminal_at < :cutoff
    order by terminal_at limit :limit {locked}
    """,
    result={"notification_id": Id, "at": Moment},
)
# Beside a list of ids the index by terminal time is a trap: it may look empty to the planner and hold half a million.
_IS_DOOMED = "notification_id {any:ids} and coalesce(terminal_at, null) < :cutoff"
_bury = Statement(
    f"""
    insert into tombstones (notification_id, source_site_id, digest, status, terminal_at, purged_at)
    select notification_id, source_site_id, digest, status, terminal_at, {{now}} from notifications where {_IS_DOOMED}
    on conflict (notification_id) do nothing
    """,
    lists={"ids": "id"},
)
_delete = Statement(
    f"delete from notifications where {_IS_DOOMED} returning notification_id",
    lists={"ids": "id"},
    result={"notification_id": Id},
)

# What is told of a notification stays as long as its row, whatever its age.
_old_entries = Statement(
    """
    select event_id, occurred_at as at from audit
    where occurred_at >= :after and occurred_at < :cutoff
        and not exists (select 1 from notifications n where n.notification_id = audit.correlation_id)
    order by occurred_at limit :limit
    """,
    result={"event_id": Id, "at": Moment},
)
_delete_entries = Statement(
    "delete from audit where event_id {any:ids} returning event_id", lists={"ids": "id"}, result={"event_id": Id}
)


def purge_notifications(conn: Connection, span: Span) -> Batch:
    """Delete rows that became terminal before the cutoff, with their targets and attempts; leave tombstones.

    The rows are locked from the first look on; one that somebody else works on is left for the next purge.
    """
    found = _doomed.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit)
    ids = [row.notification_id for row in found]
    if not ids:
        return Batch(0, None)
    _bury.run(conn, ids=ids, cutoff=span.cutoff, now=span.now)
    return Batch(len(_delete.run(conn, ids=ids, cutoff=span.cutoff)), _next(found, span))


def purge_audit(conn: Connection, span: Span) -> Batch:
    """Delete entries from before the cutoff, but for those of notifications that still have a row."""
    found = _old_entries.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit)
    deleted = _delete_entries.run(conn, ids=[row.event_id for row in found]) if found else []
    return Batch(len(deleted), _next(found, span))


class Dated:
    """A table whose rows go by nothing but their time."""

    def __init__(self, table: str, column: str) -> None:
        # By a span of time rather than row by row; rows of one moment go together.
        self._delete = Statement(
            f"""
            delete from {table} where {column} < :cutoff and {column} <= (
                select max({column}) from (
                    select {column} from {table} where {column} < :cutoff order by {column} limit :limit
                ) as oldest
            )
            returning {column} as at
            """,
            result={"at": Moment},
        )

    def purge(self, conn: Connection, span: Span) -> Batch:
        """Delete the oldest rows from before the cutoff; a little more than so many where they are of one moment."""
        found = self._delete.run(conn, cutoff=span.cutoff, limit=span.limit)
        return Batch(len(found), span.after if len(found) >= span.limit else None)


TOMBSTONES = Dated("tombstones", "purged_at")
SAMPLES = Dated("samples", "taken_at")
NODES = Dated("nodes", "heartbeat_at")


def _next(found: Sequence[Row[Any]], span: Span) -> datetime | None:
    return found[-1].at if len(found) == span.limit else None
