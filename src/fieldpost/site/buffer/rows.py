"""Conversion of the buffer's rows to core types, and bulk inserts."""

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
    """The columns of a notification that forwarding needs; a lighter type than Message for large batches."""

    sequence: int
    message_id: str
    payload: str


# Rows come by the hundred thousand, and a dict lookup costs a tenth of an enum call.
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
    """The entry of a row with REJECTED_COLUMNS."""
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
    """Inserts into one table: a single row, or many rows by one statement.

    `same` maps columns to an SQL expression that is the same for all rows. One statement for many rows saves steps:
    each step of a statement lets other threads run, which costs more than the step if there are many of them.
    """

    def __init__(self, table: str, columns: Sequence[str], same: Mapping[str, str] | None = None) -> None:
        same = same or {}
        self._begin = f"INSERT INTO {table} ({', '.join([*columns, *same])}) VALUES "
        self._marks = f"({', '.join(['?'] * len(columns) + list(same.values()))})"
        self._statements: dict[int, str] = {}

    def insert(self, cursor: apsw.Cursor, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert all rows or none: SQLite undoes a statement that fails."""
        statement = self._statements.get(len(rows))
        if statement is None:
            statement = self._statements[len(rows)] = self._begin + ", ".join([self._marks] * len(rows))
        cursor.execute(statement, [value for row in rows for value in row] if len(rows) > 1 else rows[0])
