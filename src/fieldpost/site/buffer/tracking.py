"""The tracking table: the record of each cached call, from the moment a script issues it.

The record outlives the message, which exists only while the call is retried; both change in one transaction. The site
is the source of truth: `status` does not need central. Notifications have no row here, because central keeps their
record.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import apsw

from fieldpost.core.errors import NotFound
from fieldpost.core.ids import CallId, parse_call_id
from fieldpost.core.sites.message import CallRecord, CallStatus, NewCall
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.rows import NEW_CALL, PROVENANCE, RowType

_RECORD = RowType(CallRecord)

_NEXT_CHANGE = "UPDATE facts SET value = value + 1 WHERE name = 'change_sequence' RETURNING value"

_INSERT = """
INSERT INTO tracking (call_id, category, target_summary, status, instance, script, execution_id, parent_execution_id,
    created_at, updated_at, version, change_sequence)
VALUES (:call_id, :category, :target_summary, 'pending', :instance, :script, :execution_id, :parent_execution_id,
    :created_at, :created_at, max(1, :change_sequence >> 32 << 32), :change_sequence)
"""

# In a pair the version is at least the first one of the epoch (`core.pair.numbering.next_version`).
# A delivery keeps the error that preceded it; an operator's retry clears it.
_CHANGE = f"""
UPDATE tracking
SET status = :status, retry_count = :retry_count, http_status = :http_status, updated_at = :now,
    last_error = CASE WHEN :status = 'delivered' THEN last_error ELSE :error END,
    terminal_at = CASE WHEN :status IN ('delivered', 'failed', 'discarded') THEN :now END,
    version = max(version + 1, :change_sequence >> 32 << 32), change_sequence = :change_sequence
WHERE call_id = :call_id AND terminal_at IS NULL
RETURNING {_RECORD.columns}
"""

_FIND = f"SELECT {_RECORD.columns} FROM tracking WHERE call_id = :call_id"
_CHANGED = (
    f"SELECT {_RECORD.columns} FROM tracking WHERE change_sequence > :cursor ORDER BY change_sequence LIMIT :limit"
)
_PARKED = f"""
SELECT {_RECORD.columns} FROM tracking WHERE terminal_at IS NULL AND status = 'parked'
ORDER BY created_at LIMIT :limit OFFSET :skipped
"""
_COUNTS = "SELECT status, count(*) FROM tracking WHERE terminal_at IS NULL GROUP BY status"
_PURGE = """
DELETE FROM tracking WHERE call_id IN (
    SELECT call_id FROM tracking WHERE terminal_at IS NOT NULL AND terminal_at < :before LIMIT :limit
) RETURNING change_sequence
"""
# Central reads from a change on: this value shows that purged rows ended without its knowledge.
_FORGET = """
INSERT INTO facts (name, value) VALUES ('forgotten', :change) ON CONFLICT (name) DO UPDATE
SET value = max(value, excluded.value)
"""
_DELETE = "DELETE FROM tracking WHERE call_id = :call_id RETURNING change_sequence"
_FORGOTTEN = "SELECT value FROM facts WHERE name = 'forgotten'"
_LAST_CHANGE = "SELECT value FROM facts WHERE name = 'change_sequence'"
_INCARNATION = "SELECT value FROM facts WHERE name = 'incarnation'"


class Tracking:
    """The records of this site's external calls and database writes; scripts have it as `site.tracking`."""

    def __init__(self, read: "Callable[[Callable[[apsw.Cursor], Any]], Any]") -> None:
        """`read` runs a function on the buffer's file: `Buffer.read`."""
        self._read = read

    def status(self, call_id: CallId | str) -> CallRecord:
        """The record of the call. Answered at the site, even if central or the target is unreachable.

        Raises InvalidInput for a malformed id, and NotFound if this site never issued the call or its record is past
        the retention (7 days after its end, by default).
        """
        record = self.find(parse_call_id(call_id))
        if record is None:
            raise NotFound("call.unknown", f"this site has no call {call_id}")
        return record

    def find(self, call_id: str) -> CallRecord | None:
        """The record of the call, if there is one."""
        rows = self._rows(_FIND, {"call_id": call_id})
        return _RECORD.read(rows[0]) if rows else None

    def changed_since(self, cursor: int, limit: int) -> list[CallRecord]:
        """The records with a change sequence above the cursor, in its order. The last one's is the next cursor."""
        return [_RECORD.read(row) for row in self._rows(_CHANGED, {"cursor": cursor, "limit": limit})]

    def parked(self, limit: int = 100, skipped: int = 0) -> list[CallRecord]:
        """The parked calls, oldest first."""
        found: list[CallRecord] = self._read(lambda cursor: parked(cursor, limit, skipped))
        return found

    def counts(self) -> dict[CallStatus, int]:
        """How many calls have not ended, by status."""
        return {CallStatus(status): count for status, count in self._rows(_COUNTS)}

    def last_change(self) -> int:
        """The newest change sequence. It never decreases, even when rows are purged."""
        return int(self._rows(_LAST_CHANGE)[0][0])

    def forgotten(self) -> int:
        """The newest change among the purged rows; 0 if no row was purged."""
        rows = self._rows(_FORGOTTEN)
        return int(rows[0][0]) if rows else 0

    def incarnation(self) -> str:
        """The random id that the buffer's file got when it was created."""
        return str(self._rows(_INCARNATION)[0][0])

    def _rows(self, statement: str, parameters: dict[str, Any] | None = None) -> list[Any]:
        rows: list[Any] = self._read(lambda cursor: cursor.execute(statement, parameters).fetchall())
        return rows


def parked(cursor: apsw.Cursor, limit: int, skipped: int = 0) -> list[CallRecord]:
    """The parked calls, oldest first."""
    return [_RECORD.read(row) for row in cursor.execute(_PARKED, {"limit": limit, "skipped": skipped})]


def insert(cursor: apsw.Cursor, call: NewCall) -> None:
    """Start the record of a call."""
    labels = PROVENANCE.parameters(call.provenance)
    cursor.execute(_INSERT, NEW_CALL.parameters(call) | labels | {"change_sequence": next_change(cursor)})


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
    """Change the status of a record and return it; None if it does not exist or has ended."""
    parameters = {
        "call_id": call_id,
        "status": status.value,
        "retry_count": retry_count,
        "error": error,
        "http_status": http_status,
        "now": to_microseconds(now),
        "change_sequence": next_change(cursor),
    }
    rows = cursor.execute(_CHANGE, parameters).fetchall()
    return _RECORD.read(rows[0]) if rows else None


def purge(cursor: apsw.Cursor, before: datetime, limit: int = 1_000) -> int:
    """Delete up to `limit` records that ended before this time; returns how many. Parked calls have not ended."""
    rows: list[tuple[Any, ...]] = cursor.execute(_PURGE, {"before": to_microseconds(before), "limit": limit}).fetchall()
    if rows:
        cursor.execute(_FORGET, {"change": max(change for (change,) in rows)})
    return len(rows)


def forget(cursor: apsw.Cursor, call_id: str) -> None:
    """Delete a record, because the other node of the pair has purged it."""
    for (change,) in cursor.execute(_DELETE, {"call_id": call_id}).fetchall():
        cursor.execute(_FORGET, {"change": change})


def next_change(cursor: apsw.Cursor) -> int:
    """The next change sequence of this node."""
    rows: list[tuple[Any, ...]] = cursor.execute(_NEXT_CHANGE).fetchall()
    return int(rows[0][0])
