"""SQL fragments in which PostgreSQL, SQLite and MariaDB differ; `statements.py` is written in terms of them.

A set of rows travels as one JSON text and is unpacked by the database. Parameters are named, `:name`, and translated to
the form of the driver. Each database's own clock decides: `now` is the time of the statement, so that an index on a
time can be used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fieldpost.outbox.ddl import NOW
from fieldpost.outbox.tables import OutboxDatabase

SetColumn = Literal["id", "text", "int", "float"]

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_POSTGRESQL: Mapping[SetColumn, str] = {"id": "uuid", "text": "text", "int": "bigint", "float": "double precision"}
# Without a character set, a column of JSON_TABLE has the database's, which may lack characters of the text.
_UTF8 = "character set utf8mb4 collate utf8mb4_bin"
_MARIADB: Mapping[SetColumn, str] = {
    "id": f"char(36) {_UTF8}",
    "text": f"mediumtext {_UTF8}",
    "int": "bigint",
    "float": "double",
}


@dataclass(frozen=True, slots=True)
class OutboxDialect:
    """The SQL of one kind of database."""

    database: OutboxDatabase

    @property
    def is_postgresql(self) -> bool:
        return self.database is OutboxDatabase.POSTGRESQL

    @property
    def is_sqlite(self) -> bool:
        return self.database is OutboxDatabase.SQLITE

    @property
    def is_mariadb(self) -> bool:
        return self.database is OutboxDatabase.MARIADB

    @property
    def now(self) -> str:
        # clock_timestamp() is volatile, and PostgreSQL does not compare an index with a volatile value.
        return "statement_timestamp()" if self.is_postgresql else NOW[self.database]

    def now_plus(self, seconds: str) -> str:
        """The time this many seconds (an expression) from now."""
        if self.is_postgresql:
            return f"(statement_timestamp() + make_interval(secs => {seconds}))"
        if self.is_sqlite:
            return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', ({seconds}) || ' seconds')"
        return f"(utc_timestamp(6) + interval ({seconds}) * 1000000 microsecond)"

    def age_s(self, time: str) -> str:
        """The seconds since a time."""
        if self.is_postgresql:
            return f"cast(extract(epoch from statement_timestamp() - {time}) as double precision)"
        if self.is_sqlite:
            return f"((julianday('now') - julianday({time})) * 86400)"
        return f"(timestampdiff(microsecond, {time}, utc_timestamp(6)) / 1e6)"

    def as_rfc3339(self, time: str) -> str:
        """A time as text, the same for a row at every publication; null if it cannot be read."""
        if self.is_postgresql:
            return f"""to_char({time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
        if self.is_sqlite:
            return f"strftime('%Y-%m-%dT%H:%M:%f000Z', {time})"
        return f"date_format({time}, '%Y-%m-%dT%H:%i:%s.%fZ')"

    def from_rfc3339(self, text: str) -> str:
        """A stored time from the text `2026-11-15T08:00:00.000000Z` in UTC."""
        if self.is_postgresql:
            return f"cast({text} as timestamptz)"
        plain = f"replace(replace({text}, 'T', ' '), 'Z', '')"
        return plain if self.is_sqlite else f"cast({plain} as datetime(6))"

    @property
    def far_future(self) -> str:
        return {
            OutboxDatabase.POSTGRESQL: "timestamptz '9999-12-31 00:00:00+00'",
            OutboxDatabase.SQLITE: "'9999-12-31 00:00:00.000000'",
            OutboxDatabase.MARIADB: "timestamp '9999-12-31 00:00:00'",
        }[self.database]

    def text_of(self, column: str) -> str:
        """A column of type UUID or JSON as text. SQLite may hold the bytes that an application inserted."""
        return column if self.is_mariadb else f"cast({column} as text)"

    def is_usable_id(self, column: str) -> str:
        """Whether an id can be sent and compared. SQLite may hold bytes, or a text that is not UTF-8."""
        return f"typeof({column}) = 'text' and {column} not glob '*[^ -~]*'" if self.is_sqlite else "true"

    def bytes_of(self, column: str) -> str:
        if self.is_postgresql:
            return f"octet_length(cast({column} as text))"
        return f"length(cast({column} as blob))" if self.is_sqlite else f"length({column})"

    def rows(self, columns: Mapping[str, SetColumn]) -> str:
        """The set of rows in the parameter `rows`, a JSON array of arrays, as a table named u."""
        if self.is_postgresql:
            read = (f"cast(v.value ->> {n} as {_POSTGRESQL[kind]}) as {name}" for n, (name, kind) in _count(columns))
            return f"(select {', '.join(read)} from jsonb_array_elements(cast(:rows as jsonb)) as v(value)) as u"
        if self.is_sqlite:
            read = (f"value ->> '$[{n}]' as {name}" for n, (name, _) in _count(columns))
            return f"(select {', '.join(read)} from json_each(:rows)) as u"
        read = (f"{name} {_MARIADB[kind]} path '$[{n}]'" for n, (name, kind) in _count(columns))
        return f"json_table(:rows, '$[*]' columns ({', '.join(read)})) as u"

    def update_from(self, table: str, columns: Mapping[str, SetColumn], changes: str, where: str) -> str:
        """An UPDATE joined with the set of rows; the names of the set's columns differ from those of the table."""
        if self.is_mariadb:
            return f"update {table} join {self.rows(columns)} on {where} set {changes}"
        return f"update {table} set {changes} from {self.rows(columns)} where {where}{self.by_key}"

    @property
    def by_key(self) -> str:
        """PostgreSQL: the ids of the set once more, as an array. It might hash-join the set with the whole table."""
        if not self.is_postgresql:
            return ""
        ids = "select cast(w.value ->> 0 as uuid) from jsonb_array_elements(cast(:rows as jsonb)) as w(value)"
        return f" and event_outbox_id = any(array({ids}))"

    def insert_new(self, table: str, names: str, select: str, key: str) -> str:
        """An INSERT … SELECT that leaves out rows whose primary key exists."""
        if self.is_mariadb:
            return f"insert into {table} ({names}) {select} on duplicate key update {key} = {table}.{key}"
        # "where true" separates ON CONFLICT from a join of the SELECT for SQLite's parser.
        return f"insert into {table} ({names}) {select} where true on conflict ({key}) do nothing"

    @property
    def skip_locked(self) -> str:
        return "" if self.is_sqlite else "for update skip locked"

    def compile(self, sql: str) -> "CompiledSql":
        """The statement with the parameters of the driver."""
        names = list(dict.fromkeys(_PARAMETER.findall(sql)))
        if self.is_postgresql:
            return CompiledSql(_PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), tuple(names))
        if self.is_mariadb:
            return CompiledSql(_PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")), tuple(names))
        return CompiledSql(sql, tuple(names))


@dataclass(frozen=True, slots=True)
class CompiledSql:
    """A statement in the form of its driver, and the names of its parameters in order."""

    text: str
    names: tuple[str, ...]


def _count(columns: Mapping[str, SetColumn]) -> "list[tuple[int, tuple[str, SetColumn]]]":
    return list(enumerate(columns.items()))
