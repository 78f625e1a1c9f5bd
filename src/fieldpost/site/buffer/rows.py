"""Rows of the buffer: as the core's types, and on their way in."""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw
import msgspec

from fieldpost.core.sites.message import Category, Message, MessageStatus, RejectedMessage
from fieldpost.core.times import from_microseconds

COLUMNS = """sequence, message_id, category, target, payload, status, retry_count, last_error, created_at,
    last_attempt_at, due_at"""
"""The columns that `messages` and `calls` share."""

REJECTED_COLUMNS = "message_id, category, target, payload, code, error, retry_count, created_at, rejected_at"


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A notification on its way to central: as much of its row as the way needs, since they leave by the hundred."""

    sequence: int
    message_id: str
    payload: str


# By the hundred thousand: looking a member up costs a tenth of asking its class for it.
_CATEGORIES = {category.value: category for category in Category}
_STATUSES = {status.value: status for status in MessageStatus}


def table_of_category(category: str) -> str:
    """The table for messages of this category."""
    return "messages" if category == Category.NOTIFICATION.value else "calls"


def message_from(row: Sequence[Any]) -> Message:
    """The message of a row with COLUMNS and the claim token."""
    sequence, message_id, category, target, payload, status, retries, error, created, tried, due, claim_token = row
    return Message(
        sequence=sequence,
        message_id=message_id,
        category=_CATEGORIES[category],
        target=target,
        payload=payload,
        status=_STATUSES[status],
        retry_count=retries,
        last_error=error,
        created_at=from_microseconds(created),
        last_attempt_at=None if tried is None else from_microseconds(tried),
        due_at=from_microseconds(due) if due else None,
        claim_token=claim_token,
    )


def rejected_from(row: Sequence[Any]) -> RejectedMessage:
    """A row of `rejected`, in the order of REJECTED_COLUMNS."""
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


class Rows:
    """A table and those of its columns that are given, for rows that are inserted one by one, or many by one statement.

    The `same` columns have one SQL expression for all rows.

    Every step of a statement lets other threads in between, which with many of them costs more than the step itself.
    """

    def __init__(self, table: str, columns: Sequence[str], same: Mapping[str, str] | None = None) -> None:
        same = same or {}
        self._begin = f"INSERT INTO {table} ({', '.join([*columns, *same])}) VALUES "
        self._marks = f"({', '.join(['?'] * len(columns) + list(same.values()))})"
        self._statements: dict[int, str] = {}

    def insert(self, cursor: apsw.Cursor, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert all of these, or none: SQLite undoes a statement that fails."""
        statement = self._statements.get(len(rows))
        if statement is None:
            statement = self._statements[len(rows)] = self._begin + ", ".join([self._marks] * len(rows))
        cursor.execute(statement, [value for row in rows for value in row] if len(rows) > 1 else rows[0])
