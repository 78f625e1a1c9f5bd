"""Conversion of the buffer's rows to core types, and bulk inserts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast, get_args

import apsw
import msgspec

from fieldpost.core.notification import Provenance
from fieldpost.core.sites.message import Category, Message, NewCall, RejectedMessage
from fieldpost.core.times import from_microseconds, to_microseconds

T = TypeVar("T")


class RowType(Generic[T]):
    """Reads rows into a dataclass that has a field for each column, and prepares its values for a statement."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._fields = [(field.name, _reader(field.type)) for field in fields(cast(Any, kind))]
        self.columns = ", ".join(name for name, _ in self._fields)
        """The columns to select, in the order of the fields."""

    def read(self, row: Sequence[Any]) -> T:
        """The value of a row with these columns."""
        columns = zip(self._fields, row, strict=True)
        return self._kind(
            **{name: value if reader is None or value is None else reader(value) for (name, reader), value in columns}
        )

    def parameters(self, value: T) -> dict[str, Any]:
        """The fields of the value as parameters of a statement."""
        return {name: _stored(getattr(value, name)) for name, _ in self._fields}


def _reader(type_: Any) -> Callable[[Any], Any] | None:
    for one in get_args(type_) or (type_,):
        if one is datetime:
            return from_microseconds
        if isinstance(one, type) and issubclass(one, StrEnum):
            # A dict lookup costs a tenth of an enum call.
            return {member.value: member for member in one}.__getitem__
    return None


def _stored(value: Any) -> Any:
    match value:
        case datetime():
            return to_microseconds(value)
        case StrEnum():
            return value.value
        case _:
            return value


MESSAGE = RowType(Message)
NEW_CALL = RowType(NewCall)
PROVENANCE = RowType(Provenance)
REJECTED = RowType(RejectedMessage)
CALL_COLUMNS = MESSAGE.columns.replace("due_at", "nullif(due_at, 0)")
"""The columns of `calls` for MESSAGE."""
NOTIFICATION_COLUMNS = CALL_COLUMNS.replace("claim_token", "0")
"""The columns of `messages` for MESSAGE."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """The columns of a notification that forwarding needs; a lighter type than Message for large batches."""

    sequence: int
    message_id: str
    payload: str


def table_of_category(category: str) -> str:
    """The table for messages of this category."""
    return "messages" if category == Category.NOTIFICATION.value else "calls"


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
