"""The site's buffer: what waits to leave the site, and the box of what central refused for good. All site SQL.

Any number of processes may have the file open: scripts add, the agent takes and settles. An added message is on disk
when `add` returns; it leaves only by `settle`, in one transaction per batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from fieldpost.core.errors import Conflict
from fieldpost.core.forwarding import WAIT_MAX, Box, Clear, Decision, TryAgain
from fieldpost.core.message import Category, Message, MessageStatus, RejectedMessage
from fieldpost.core.times import from_microseconds, to_microseconds
from fieldpost.site.committer import Committer

_ADD = """
INSERT INTO messages (message_id, category, tracked_operation_id, target, payload, created_at)
VALUES (:message_id, :category, :tracked_operation_id, :target, :payload, :created_at)
"""

_COLUMNS = """sequence, message_id, category, tracked_operation_id, target, payload, status, retry_count, last_error,
    created_at, last_attempt_at, due_at"""

# Walked in commit order. A due time beyond the longest wait is one that the clock has jumped away from: due as well.
_TAKE = f"""
SELECT {_COLUMNS}, octet_length(payload) FROM messages
WHERE category = :category AND status <> 'parked' AND (due_at <= :now OR due_at > :now + {WAIT_MAX.seconds * 1_000_000})
ORDER BY sequence LIMIT :items_max
"""

_FIND = f"SELECT {_COLUMNS} FROM messages WHERE message_id = :message_id"

_CLEAR = "DELETE FROM messages WHERE message_id = :message_id"

_BOX = """
INSERT INTO rejected
    (message_id, category, target, payload, code, error, retry_count, created_at, rejected_at)
SELECT message_id, category, target, payload, :code, :error, retry_count, created_at, :now
FROM messages WHERE message_id = :message_id
ON CONFLICT (message_id) DO NOTHING
"""

_TRY_AGAIN = """
UPDATE messages
SET status = 'retrying', retry_count = retry_count + 1, last_error = :error, last_attempt_at = :now, due_at = :due_at
WHERE message_id = :message_id
"""

_REJECTED = (
    "SELECT message_id, category, target, payload, code, error, retry_count, created_at, rejected_at FROM rejected"
)
_FIND_REJECTED = f"{_REJECTED} WHERE message_id = :message_id"
_LIST_REJECTED = f"{_REJECTED} ORDER BY rejected_at, message_id LIMIT :limit"

_DEPTH = "SELECT category, count(*) FROM messages GROUP BY category"
_OLDEST = "SELECT created_at FROM messages ORDER BY sequence LIMIT 1"
_COUNT_REJECTED = "SELECT count(*) FROM rejected"


@dataclass(frozen=True, slots=True)
class Depth:
    """How much waits, for health."""

    waiting: dict[Category, int]
    rejected: int
    oldest_created_at: datetime | None


class Buffer:
    """One site's buffer. Safe to use from many threads; forked children get a connection of their own."""

    def __init__(self, path: Path) -> None:
        self._committer: Committer | None = Committer.shared(path)

    def add(
        self,
        *,
        message_id: str,
        category: Category,
        target: str,
        payload: str,
        created_at: datetime,
        tracked_operation_id: str | None = None,
    ) -> None:
        """Put a message into the buffer; it is on disk when this returns, and absent when this raises.

        Raises Unavailable with the code `buffer.busy`, `buffer.full` or `buffer.io`, Conflict for an id that is there.
        """
        row = {
            "message_id": message_id,
            "category": category.value,
            "tracked_operation_id": tracked_operation_id,
            "target": target,
            "payload": payload,
            "created_at": to_microseconds(created_at),
        }
        try:
            self._open.write(lambda cursor: cursor.execute(_ADD, row), is_one_statement=True)
        except apsw.ConstraintError as error:
            raise Conflict("message.not_new", f"the buffer does not take message {message_id}: {error}") from error

    def take(self, category: Category, now: datetime, *, items_max: int, bytes_max: int) -> list[Message]:
        """The oldest messages that are due, at most so many, with at most so many bytes of payload (one at least)."""
        return self._open.read(lambda cursor: _take(cursor, category, now, items_max, bytes_max))

    def settle(self, decisions: Sequence[tuple[str, Decision]], now: datetime) -> None:
        """Carry out what was decided for these messages, all in one transaction."""
        cleared: list[dict[str, str]] = []
        boxed: list[dict[str, str | int]] = []
        again: list[dict[str, str | int]] = []
        moment = to_microseconds(now)
        for message_id, decision in decisions:
            match decision:
                case Clear():
                    cleared.append({"message_id": message_id})
                case Box(code=code, error=error):
                    boxed.append({"message_id": message_id, "code": code, "error": error, "now": moment})
                    cleared.append({"message_id": message_id})
                case TryAgain(due_at=due_at, error=error):
                    due = to_microseconds(due_at)
                    again.append({"message_id": message_id, "error": error, "now": moment, "due_at": due})

        def work(cursor: apsw.Cursor) -> None:
            # The box before the clearing: it copies the row.
            for statement, rows in ((_BOX, boxed), (_CLEAR, cleared), (_TRY_AGAIN, again)):
                if rows:
                    cursor.executemany(statement, rows)

        self._open.write(work)

    def find(self, message_id: str) -> Message | RejectedMessage | None:
        """The message, waiting or in the rejected box; None when this site has it no more, or never had it."""
        return self._open.read(lambda cursor: _find(cursor, message_id))

    def rejected(self, limit: int = 100) -> list[RejectedMessage]:
        """What lies in the rejected box, the longest there first."""
        return self._open.read(
            lambda cursor: [_rejected(row) for row in cursor.execute(_LIST_REJECTED, {"limit": limit})]
        )

    def depth(self) -> Depth:
        """How much waits and since when."""
        return self._open.read(_depth)

    def change_mark(self) -> tuple[int, int]:
        """Differs from an earlier one when any process has written since: a hint that there may be more to take."""
        return self._open.change_mark()

    def close(self) -> None:
        """Give back the connection. A closed buffer refuses everything; closing twice is fine."""
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.release()

    @property
    def _open(self) -> Committer:
        if self._committer is None:
            raise Conflict("buffer.closed", "this site was closed", hint="open it again by Site.open(folder)")
        return self._committer


def _take(cursor: apsw.Cursor, category: Category, now: datetime, items_max: int, bytes_max: int) -> list[Message]:
    taken: list[Message] = []
    size = 0
    parameters = {"category": category.value, "now": to_microseconds(now), "items_max": items_max}
    for *columns, payload_bytes in cursor.execute(_TAKE, parameters):
        size += payload_bytes
        if taken and size > bytes_max:
            break
        taken.append(_message(columns))
    return taken


def _find(cursor: apsw.Cursor, message_id: str) -> Message | RejectedMessage | None:
    # Two statements see one moment only inside a transaction: else a message could move to the box between them.
    cursor.execute("BEGIN")
    try:
        row = cursor.execute(_FIND, {"message_id": message_id}).fetchone()
        if row is not None:
            return _message(row)
        row = cursor.execute(_FIND_REJECTED, {"message_id": message_id}).fetchone()
        return None if row is None else _rejected(row)
    finally:
        cursor.execute("COMMIT")


def _depth(cursor: apsw.Cursor) -> Depth:
    waiting = {Category(category): count for category, count in cursor.execute(_DEPTH)}
    oldest = cursor.execute(_OLDEST).fetchone()
    rejected = cursor.execute(_COUNT_REJECTED).fetchone()
    return Depth(waiting, rejected[0] if rejected else 0, from_microseconds(oldest[0]) if oldest else None)


def _message(row: Sequence[Any]) -> Message:
    (sequence, message_id, category, operation_id, target, payload, status, retries, error, created, tried, due) = row
    return Message(
        sequence=sequence,
        message_id=message_id,
        category=Category(category),
        tracked_operation_id=operation_id,
        target=target,
        payload=payload,
        status=MessageStatus(status),
        retry_count=retries,
        last_error=error,
        created_at=from_microseconds(created),
        last_attempt_at=None if tried is None else from_microseconds(tried),
        due_at=from_microseconds(due) if due else None,
    )


def _rejected(row: Sequence[Any]) -> RejectedMessage:
    (message_id, category, target, payload, code, error, retry_count, created, rejected) = row
    return RejectedMessage(
        message_id=message_id,
        category=Category(category),
        target=target,
        payload=payload,
        code=code,
        error=error,
        retry_count=retry_count,
        created_at=from_microseconds(created),
        rejected_at=from_microseconds(rejected),
    )
