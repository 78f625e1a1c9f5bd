"""The tracking table: one row per cached call, from the moment a script issues it, whatever becomes of it.

It is the record; the message in the buffer is only the means of trying again, and both change in one transaction. The
site is the one source of truth: `status` is answered here, whether central can be reached or not. Notifications have no
row here: their record is central's.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import apsw

from fieldpost.core.errors import NotFound
from fieldpost.core.ids import CallId, parse_call_id
from fieldpost.core.sites.message import CallRecord, CallStatus, Category, Operation
from fieldpost.core.times import from_microseconds, to_microseconds

_COLUMNS = """call_id, category, target_summary, status, retry_count, last_error, http_status, instance, script,
    execution_id, parent_execution_id, created_at, updated_at, terminal_at, version, change_sequence"""

_NEXT_CHANGE = "UPDATE facts SET value = value + 1 WHERE name = 'change_sequence' RETURNING value"

_INSERT = f"""
INSERT INTO tracking ({_COLUMNS})
VALUES (:call_id, :category, :target_summary, 'pending', 0, NULL, NULL, :instance, :script,
    :execution_id, :parent_execution_id, :now, :now, NULL, 1, :change_sequence)
"""

# A delivery keeps the error that preceded it; an operator's retry begins with none.
_CHANGE = f"""
UPDATE tracking
SET status = :status, retry_count = :retry_count, http_status = :http_status, updated_at = :now,
    last_error = CASE WHEN :status = 'delivered' THEN last_error ELSE :error END,
    terminal_at = CASE WHEN :status IN ('delivered', 'failed', 'discarded') THEN :now END,
    version = version + 1, change_sequence = :change_sequence
WHERE call_id = :call_id AND terminal_at IS NULL
RETURNING {_COLUMNS}
"""

_FIND = f"SELECT {_COLUMNS} FROM tracking WHERE call_id = :call_id"
_CHANGED = f"SELECT {_COLUMNS} FROM tracking WHERE change_sequence > :cursor ORDER BY change_sequence LIMIT :limit"
_PARKED = f"""
SELECT {_COLUMNS} FROM tracking WHERE terminal_at IS NULL AND status = 'parked'
ORDER BY created_at LIMIT :limit OFFSET :skipped
"""
_COUNTS = "SELECT status, count(*) FROM tracking WHERE terminal_at IS NULL GROUP BY status"
_PURGE = """
DELETE FROM tracking WHERE call_id IN (
    SELECT call_id FROM tracking WHERE terminal_at IS NOT NULL AND terminal_at < :before LIMIT :limit
) RETURNING change_sequence
"""
# Central asks from a change on: by this it learns that rows went of whose end it had not heard.
_FORGET = """
INSERT INTO facts (name, value) VALUES ('forgotten', :change) ON CONFLICT (name) DO UPDATE
SET value = max(value, excluded.value)
"""
_FORGOTTEN = "SELECT value FROM facts WHERE name = 'forgotten'"
_LAST_CHANGE = "SELECT value FROM facts WHERE name = 'change_sequence'"
_INCARNATION = "SELECT value FROM facts WHERE name = 'incarnation'"


class Tracking:
    """What became of this site's external calls and database writes; scripts have it as `site.tracking`."""

    def __init__(self, read: "Callable[[Callable[[apsw.Cursor], Any]], Any]") -> None:
        """`read` runs a function on the buffer's file: `Buffer.read`."""
        self._read = read

    def status(self, call_id: CallId | str) -> CallRecord:
        """Where the operation stands. Always answered here, also when central or the target is away.

        Raises InvalidInput for a malformed id, and NotFound for one that this site never made, or whose row is past
        its retention (7 days after its end, by default).
        """
        record = self.find(parse_call_id(call_id))
        if record is None:
            raise NotFound("operation.unknown", f"this site knows no operation {call_id}")
        return record

    def find(self, call_id: str) -> CallRecord | None:
        """The operation's record; None when there is none."""
        return _one(self._do(lambda cursor: cursor.execute(_FIND, {"call_id": call_id}).fetchall()))

    def changed_since(self, cursor: int, limit: int) -> list[CallRecord]:
        """The rows whose change sequence is beyond the cursor, in its order: the last one's is the next cursor."""
        parameters = {"cursor": cursor, "limit": limit}
        return [_record(row) for row in self._do(lambda c: c.execute(_CHANGED, parameters).fetchall())]

    def parked(self, limit: int = 100, skipped: int = 0) -> list[CallRecord]:
        """What waits for a person, the oldest first."""
        parameters = {"limit": limit, "skipped": skipped}
        return [_record(row) for row in self._do(lambda c: c.execute(_PARKED, parameters).fetchall())]

    def counts(self) -> dict[CallStatus, int]:
        """How many operations have not come to their end, by status."""
        return {CallStatus(status): count for status, count in self._do(lambda c: c.execute(_COUNTS).fetchall())}

    def last_change(self) -> int:
        """The change sequence that was given last; it never goes back, whatever is purged."""
        return int(self._do(lambda cursor: cursor.execute(_LAST_CHANGE).fetchall())[0][0])

    def forgotten(self) -> int:
        """The newest change among the rows that were purged; 0 when none was."""
        rows = self._do(lambda cursor: cursor.execute(_FORGOTTEN).fetchall())
        return int(rows[0][0]) if rows else 0

    def incarnation(self) -> str:
        """The random id that the buffer's file got when it was made."""
        return str(self._do(lambda cursor: cursor.execute(_INCARNATION).fetchall())[0][0])

    def _do(self, work: "Callable[[apsw.Cursor], list[Any]]") -> list[Any]:
        rows: list[Any] = self._read(work)
        return rows


def insert(cursor: apsw.Cursor, operation: Operation) -> None:
    """Begin the record of an operation."""
    cursor.execute(
        _INSERT,
        {
            "call_id": operation.call_id,
            "category": operation.category.value,
            "target_summary": operation.target_summary,
            "instance": operation.provenance.instance,
            "script": operation.provenance.script,
            "execution_id": operation.provenance.execution_id,
            "parent_execution_id": operation.provenance.parent_execution_id,
            "now": to_microseconds(operation.created_at),
            "change_sequence": _next_change(cursor),
        },
    )


def change(
    cursor: apsw.Cursor,
    call_id: str,
    status: CallStatus,
    now: datetime,
    *,
    retry_count: int = 0,
    error: str | None = None,
    http_status: int | None = None,
) -> CallRecord | None:
    """Move a record on; what it is now. None when there is none, or it is at its end: nothing follows that."""
    parameters = {
        "call_id": call_id,
        "status": status.value,
        "retry_count": retry_count,
        "error": error,
        "http_status": http_status,
        "now": to_microseconds(now),
        "change_sequence": _next_change(cursor),
    }
    return _one(cursor.execute(_CHANGE, parameters).fetchall())


def purge(cursor: apsw.Cursor, before: datetime, limit: int = 1_000) -> int:
    """Drop rows that came to their end before this time, at most so many; how many. Parked ones are never at theirs."""
    rows: list[tuple[Any, ...]] = cursor.execute(_PURGE, {"before": to_microseconds(before), "limit": limit}).fetchall()
    if rows:
        cursor.execute(_FORGET, {"change": max(change for (change,) in rows)})
    return len(rows)


def _next_change(cursor: apsw.Cursor) -> int:
    rows: list[tuple[Any, ...]] = cursor.execute(_NEXT_CHANGE).fetchall()
    return int(rows[0][0])


def _one(rows: Sequence[Sequence[Any]]) -> CallRecord | None:
    return _record(rows[0]) if rows else None


def _record(row: Sequence[Any]) -> CallRecord:
    (call_id, category, summary, status, retries, error, http_status, instance, script, execution, parent) = row[:11]
    created, updated, terminal, version, change_sequence = row[11:]
    return CallRecord(
        call_id=CallId(call_id),
        category=Category(category),
        target_summary=summary,
        status=CallStatus(status),
        retry_count=retries,
        last_error=error,
        http_status=http_status,
        instance=instance,
        script=script,
        execution_id=execution,
        parent_execution_id=parent,
        created_at=from_microseconds(created),
        updated_at=from_microseconds(updated),
        terminal_at=None if terminal is None else from_microseconds(terminal),
        version=version,
        change_sequence=change_sequence,
    )
