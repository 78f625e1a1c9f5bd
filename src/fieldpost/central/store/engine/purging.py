"""Deleting expired rows in bounded batches: the types and the simplest case, shared by every table that is purged."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.statement import Statement

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
BATCH_MAX = 1000


@dataclass(frozen=True, slots=True)
class PurgeRange:
    """The rows that one batch may delete: from `after` up to the cutoff, oldest first, at most `limit`."""

    cutoff: datetime
    after: datetime
    limit: int
    now: datetime
    """The database's time when the purge began."""


@dataclass(frozen=True, slots=True)
class PurgedBatch:
    """The result of one batch."""

    deleted: int
    after: datetime | None
    """Where the next batch starts; None when nothing is left to delete."""


class DatedTable:
    """A table whose rows expire by their time alone, except those that meet the condition `unless`."""

    def __init__(self, table: str, column: str, unless: str = "false") -> None:
        # Deletes a range of time, not single rows: rows with the same timestamp go together.
        self._delete = Statement(
            f"""
            delete from {table} where {column} < :cutoff and not {unless} and {column} <= (
                select max({column}) from (
                    select {column} from {table} where {column} < :cutoff and not {unless}
                    order by {column} limit :limit
                ) as oldest
            )
            returning {column} as at
            """,
            result={"at": Moment},
        )

    def purge(self, conn: Connection, span: PurgeRange) -> PurgedBatch:
        """Delete the oldest rows before the cutoff; slightly more than `limit` where rows share a timestamp."""
        found = self._delete.run(conn, cutoff=span.cutoff, limit=span.limit)
        return PurgedBatch(len(found), span.after if len(found) >= span.limit else None)
