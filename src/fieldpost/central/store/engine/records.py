"""Table rows as dataclasses whose fields are named like the columns; text columns become the fields' enumerations."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Table,
    Text,
    insert,
    select,
)

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind
from fieldpost.core.search.page_key import PageKey

T = TypeVar("T")

_KINDS: Mapping[type, ParameterKind] = {
    Id: "id",
    Moment: "moment",
    Text: "text",
    Integer: "int",
    BigInteger: "int",
    Boolean: "bool",
}


class Records(Generic[T]):
    """The rows of a table as values of one type, which may leave columns out."""

    def __init__(self, table: Table, type_: type[T]) -> None:
        self._table = table
        self._type = type_
        hints = get_type_hints(type_)
        self.columns = [table.c[name] for name in hints]
        self.types = {column.name: column.type for column in self.columns}
        """The columns for the result of a statement."""
        self.names = ", ".join(self.types)
        """The columns for the text of a statement."""
        self._enums = {name: enum for name, hint in hints.items() if (enum := _enum(hint)) is not None}

    @property
    def kinds(self) -> dict[str, ParameterKind]:
        """The columns as parameters of a statement over rows."""
        return {name: _KINDS[type(column_type)] for name, column_type in self.types.items()}

    def of(self, row: Row[Any]) -> T:
        """The record in this row, which may have further columns."""
        given = {name: getattr(row, name) for name in self.types}
        for name, enum in self._enums.items():
            if given[name] is not None:
                given[name] = enum(given[name])
        return self._type(**given)

    def first(self, conn: Connection, *where: ColumnElement[bool], is_locked: bool = False) -> T | None:
        """The record that fulfils these conditions; `is_locked` until the transaction ends."""
        query = select(*self.columns).where(*where)
        row = conn.execute(query.with_for_update() if is_locked else query).first()
        return self.of(row) if row else None

    def find(self, conn: Connection, query: Select[Any]) -> list[T]:
        """The records that a query of `columns` finds."""
        return [self.of(row) for row in conn.execute(query)]

    def all(self, conn: Connection, *where: ColumnElement[bool], by: Iterable[ColumnElement[Any]] = ()) -> list[T]:
        """The records that fulfil these conditions, in this order."""
        return self.find(conn, select(*self.columns).where(*where).order_by(*by))

    def add(self, conn: Connection, *records: T) -> None:
        conn.execute(insert(self._table), [self.values(record) for record in records])

    def values(self, record: T) -> dict[str, Any]:
        """The record as values by column."""
        return {name: getattr(record, name) for name in self.types}


def before(at: Column[Any], id_: Column[Any], key: PageKey) -> ColumnElement[bool]:
    """The rows after this key, newest first. The first bound is implied by the second, but an index can use it."""
    return (at <= key[0]) & ((at < key[0]) | ((at == key[0]) & (id_ < key[1])))


def _enum(hint: Any) -> type[StrEnum] | None:
    options = (hint, *get_args(hint))
    return next((one for one in options if isinstance(one, type) and issubclass(one, StrEnum)), None)
