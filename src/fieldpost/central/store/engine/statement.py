"""Statements written once for both databases, over sets of rows.

Work goes in sets, never row by row: a set of rows enters a statement as a table, by `unnest` over arrays on PostgreSQL
and by `json_each` on SQLite. The text of a statement holds these marks, filled in for each database:

    {rows}              the set of rows, as a table named u
    {now}               the database's clock on PostgreSQL unless a time was given, the given time on SQLite
    {now+lease_s}       the same, a number of seconds (the parameter lease_s) later
    {any:keys}          a list given as one parameter: `= any(...)` or `in (select value from json_each(...))`
    {json:u.report}     a text as JSON: a cast to `jsonb` on PostgreSQL, the text on SQLite
    {locked}            `for update skip locked`; nothing on SQLite, which has a single writer
"""

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, TextClause, text
from sqlalchemy.types import TypeEngine

from fieldpost.central.store.engine.column_types import Moment
from fieldpost.central.store.engine.driver_statement import DriverStatement
from fieldpost.core.times import to_microseconds

ParameterKind = Literal["id", "text", "int", "float", "moment", "bool", "bytes"]

_POSTGRESQL: dict[ParameterKind, str] = {
    "id": "uuid",
    "text": "text",
    "int": "bigint",
    "float": "double precision",
    "moment": "timestamptz",
    "bool": "boolean",
    "bytes": "bytea",
}
_MARK = re.compile(r"\{(rows|locked|now|now\+\w+|any:\w+|json:[\w.:]+)\}")


class Statement:
    """One statement in both dialects; `sqlite` is given where the text itself must differ."""

    def __init__(
        self,
        sql: str,
        *,
        sqlite: str | None = None,
        rows: Mapping[str, ParameterKind] | None = None,
        lists: Mapping[str, ParameterKind] | None = None,
        result: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]] | None = None,
    ) -> None:
        self._rows = dict(rows or {})
        self._lists = dict(lists or {})
        self._result = result or {}
        self._ready: dict[str, DriverStatement] = {}
        self._takes_now = "{now" in sql
        self._texts = {
            "postgresql": self._compile(sql, "postgresql", result),
            "sqlite": self._compile(sqlite or sql, "sqlite", result),
        }

    def run(
        self, conn: Connection, rows: Sequence[Sequence[Any]] = (), *, now: datetime | None = None, **params: Any
    ) -> Sequence[Row[Any]]:
        """Run the statement; the rows that it returns, if any."""
        return list(self._found(conn, rows, now, params))

    def each(self, conn: Connection, *, now: datetime | None = None, **params: Any) -> Generator[Row[Any], None, None]:
        """The rows one by one, as SQLite finds them: a caller that stops early ends the search."""
        yield from self._found(conn, (), now, params)

    def _found(
        self, conn: Connection, rows: Sequence[Sequence[Any]], now: datetime | None, params: dict[str, Any]
    ) -> Iterator[Row[Any]]:
        dialect = conn.dialect.name
        if self._takes_now:
            params["now"] = now
        bound = self._bind_postgresql(rows, params) if dialect == "postgresql" else self._bind_sqlite(rows, params)
        clause = self._texts[dialect]
        if conn.dispatch.before_cursor_execute:  # a test wants to see the statement
            result = conn.execute(clause, bound)
            return iter(result.fetchall() if result.returns_rows else ())
        ready = self._ready.get(dialect)
        if ready is None or ready.clause is not clause:
            ready = self._ready[dialect] = DriverStatement(clause, conn, self._result)
        return ready.run(conn, bound)

    def _compile(
        self, sql: str, dialect: str, result: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]] | None
    ) -> TextClause:
        filled = text(_MARK.sub(lambda mark: self._fill(mark[1], dialect), sql))
        return filled.columns(**result) if result else filled  # type: ignore[return-value]

    def _fill(self, mark: str, dialect: str) -> str:
        on_postgresql = dialect == "postgresql"
        if mark == "rows":
            if on_postgresql:
                arrays = ", ".join(f"cast(:u_{name} as {_POSTGRESQL[kind]}[])" for name, kind in self._rows.items())
                return f"unnest({arrays}) as u({', '.join(self._rows)})"
            columns = ", ".join(f"value ->> {number} as {name}" for number, name in enumerate(self._rows))
            return f"(select {columns} from json_each(:u)) as u"
        if mark == "locked":
            return "for update skip locked" if on_postgresql else ""
        if mark.startswith("json:"):
            value = mark.removeprefix("json:")
            return f"cast({value} as jsonb)" if on_postgresql else value
        if mark.startswith("any:"):
            name = mark.removeprefix("any:")
            if on_postgresql:
                return f"= any(cast(:{name} as {_POSTGRESQL[self._lists[name]]}[]))"
            return f"in (select value from json_each(:{name}))"
        now = "coalesce(cast(:now as timestamptz), clock_timestamp())" if on_postgresql else ":now"
        if mark == "now":
            return now
        seconds = mark.removeprefix("now+")
        if on_postgresql:
            return f"({now} + make_interval(secs => cast(:{seconds} as double precision)))"
        return f"({now} + cast(:{seconds} * 1000000 as integer))"

    def _bind_postgresql(self, rows: Sequence[Sequence[Any]], params: dict[str, Any]) -> dict[str, Any]:
        if self._rows:
            columns = list(zip(*rows, strict=True)) or [()] * len(self._rows)
            # A column without values is sent as one null and padded to the length of the others.
            params |= {
                f"u_{name}": list(column) if not column or any(v is not None for v in column) else None
                for name, column in zip(self._rows, columns, strict=True)
            }
        return params

    def _bind_sqlite(self, rows: Sequence[Sequence[Any]], params: dict[str, Any]) -> dict[str, Any]:
        bound: dict[str, Any] = {
            name: to_microseconds(v) if isinstance(v, datetime) else v for name, v in params.items()
        }
        for name in self._lists:
            bound[name] = json.dumps(list(bound[name]), default=_to_json)
        if self._rows:
            bound["u"] = json.dumps(rows, default=_to_json, ensure_ascii=False)
        return bound


def _to_json(value: object) -> int:
    if isinstance(value, datetime):
        return to_microseconds(value)
    raise TypeError(f"cannot put a {type(value).__name__} into a set of rows")


_database_time = Statement("select {now} as at", result={"at": Moment})


def database_time(conn: Connection, now: datetime | None) -> datetime:
    """The time that `{now}` stands for: the given one (`Store.now`), or the database's own on PostgreSQL."""
    at: datetime = _database_time.run(conn, now=now)[0].at
    return at
