"""Copies the rows of a damaged buffer into a new one and makes messages and tracking records consistent.

The tree of a row determines its table; for a leaf that no tree reaches, the number and types of its values do. The new
buffer's constraints check every row: a row that violates them is counted as damaged.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from fieldpost.core.quantities import plural
from fieldpost.core.times import to_microseconds
from fieldpost.site.buffer.connection import connect, log_of
from fieldpost.site.buffer.file_pages import Pages, judge_log
from fieldpost.site.repair.btrees import TreeRow, Trees
from fieldpost.site.repair.consistency import make_consistent

TABLES = ("tracking", "messages", "calls", "rejected", "keys", "commands", "events", "copies", "changes", "facts")

_FREE_CLAIMS = "UPDATE calls SET claimed_by = NULL, claimed_until = NULL WHERE claimed_by IS NOT NULL"

_HAS = "SELECT 1 FROM messages WHERE message_id = ?1 UNION ALL SELECT 1 FROM calls WHERE message_id = ?1"

_LOG = "INSERT INTO events (occurred_at, kind, severity, text) VALUES (:now, 'salvaged', 'warning', :text)"


@dataclass(slots=True)
class Salvaged:
    """The result of a salvage."""

    set_aside: Path
    kept: Counter[str] = field(default_factory=Counter)
    """Recovered rows by table."""
    lost_ids: list[str] = field(default_factory=list)
    """Messages that an index lists but whose content cannot be read."""
    damaged_pages: int = 0
    damaged_rows: int = 0
    """Rows that cannot be read or violate a constraint."""

    @property
    def is_whole(self) -> bool:
        return not (self.lost_ids or self.damaged_pages or self.damaged_rows)


def refill(fresh: Path, aside: Path, now: datetime) -> Salvaged:
    """Create a new buffer with this name and all readable rows of the one that was set aside."""
    result = Salvaged(aside)
    connection = connect(fresh)
    try:
        connection.execute("BEGIN IMMEDIATE")
        # Commits behind damage in the log are newer than those SQLite still sees, so they come first.
        passes = [True, False] if judge_log(log_of(aside)).commits_behind_damage else [False]
        known: set[str] = set()
        for beyond_damage in passes:
            pages = Pages(aside, log_of(aside), beyond_damage=beyond_damage)
            try:
                known |= _Copy(connection, Trees(pages), result).run()
            finally:
                pages.close()
        result.lost_ids = sorted(message_id for message_id in known if not _has(connection, message_id))
        connection.execute(_FREE_CLAIMS)
        make_consistent(connection.cursor(), now)
        text = (
            f"the buffer was damaged: {plural(sum(result.kept.values()), 'row')} recovered,"
            f" {plural(len(result.lost_ids), 'message')} lost"
        )
        connection.execute(_LOG, {"now": to_microseconds(now), "text": text})
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close(True)
    with fresh.open("rb+") as file:
        os.fsync(file.fileno())
    return result


class _Copy:
    """One pass over the damaged file."""

    def __init__(self, connection: apsw.Connection, trees: Trees, result: Salvaged) -> None:
        self._connection = connection
        self._trees = trees
        self._result = result
        self._present = {table: {column.name for column in _columns_of(connection, table)} for table in TABLES}
        self._columns = {table: _columns_of(connection, table) for table in TABLES}

    def run(self) -> set[str]:
        """Copy all readable rows into the new buffer; returns the ids of messages that an index lists."""
        roots, indexes = self._schema()
        damaged_rows = 0
        for table in TABLES:
            if table in roots:
                for row in self._trees.rows(roots[table]):
                    damaged_rows += not self._put(table, row)
        known = {row.values[0] for root in indexes for row in self._trees.rows(root) if row.values}
        for _, rows in self._trees.orphans():
            for row in rows:
                if _is_schema(row.values):
                    continue
                candidates = [table for table in TABLES if _fits(row.values, self._columns[table])]
                damaged_rows += len(candidates) != 1 or not self._put(candidates[0], row)
        self._result.damaged_pages = max(self._result.damaged_pages, len(self._trees.damaged_pages))
        self._result.damaged_rows = max(self._result.damaged_rows, damaged_rows + self._trees.damaged_cells)
        return {message_id for message_id in known if isinstance(message_id, str) and message_id}

    def _schema(self) -> tuple[dict[str, int], list[int]]:
        """The root pages of the tables, and of the indexes of message ids."""
        roots: dict[str, int] = {}
        indexes: list[int] = []
        entries = list(self._trees.rows(1))
        if not any(_is_schema(row.values) for row in entries):
            entries = [row for _, rows in self._trees.orphans() for row in rows]
        for row in entries:
            match row.values:
                case ["table", str(name), str(), int(root), str(statement)] if name in TABLES:
                    self._columns[name] = _columns_in_file(statement, name) or self._columns[name]
                    roots[name] = root
                case ["index", "sqlite_autoindex_messages_1" | "sqlite_autoindex_calls_1", str(), int(root), None]:
                    indexes.append(root)
                case _:
                    pass
        return roots, indexes

    def _put(self, table: str, row: TreeRow) -> bool:
        """Insert the row; whether the new buffer has it now."""
        columns = self._columns[table]
        if len(row.values) > len(columns):
            return False
        values = {column.name: value for column, value in zip(columns, row.values, strict=False)}
        alias = next((column.name for column in columns if column.is_row_id), None)
        if alias is not None:
            values[alias] = row.row_id
        if table == "facts":
            return self._put_fact(values)
        if table == "changes" or values.get("status") == "marker":
            # They belong to the pair, which the new buffer is not part of.
            return True
        is_message = table in ("messages", "calls")
        try:
            if not self._insert(table, values) and is_message and not _has(self._connection, values["message_id"]):
                # Its sequence was reused after it had left an older log.
                self._insert(table, {**values, "sequence": None})
        except apsw.Error:
            return False
        return True

    def _insert(self, table: str, values: dict[str, Any]) -> bool:
        # The names come from a damaged file: only known ones may go into a statement.
        known = {name: value for name, value in values.items() if name in self._present[table]}
        names, places = ", ".join(known), ", ".join(f":{name}" for name in known)
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING", known)
        is_new = self._connection.changes() > 0
        self._result.kept[table] += is_new
        return is_new

    def _put_fact(self, values: dict[str, Any]) -> bool:
        """Keep the change sequence; the other facts belong to the replaced file."""
        if values.get("name") == "change_sequence" and isinstance(values.get("value"), int):
            self._connection.execute("UPDATE facts SET value = max(value, :value) WHERE name = :name", values)
        return True


def _has(connection: apsw.Connection, message_id: object) -> bool:
    return connection.execute(_HAS, (message_id,)).fetchone() is not None


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    may_be_null: bool
    is_row_id: bool


def _columns_of(connection: apsw.Connection, table: str) -> list[_Column]:
    found = list(connection.execute(f"PRAGMA table_info({table})"))
    return [
        _Column(name, kind, not (is_required or place), is_row_id=bool(place) and kind == "INTEGER")
        for _, name, kind, is_required, _, place in found
    ]


def _columns_in_file(statement: str, table: str) -> list[_Column]:
    """The columns of a table according to its file; empty if the statement is invalid."""
    memory = apsw.Connection(":memory:")
    try:
        memory.execute(statement)
        return _columns_of(memory, table)
    except apsw.Error:
        return []
    finally:
        memory.close()


def _is_schema(values: Sequence[Any]) -> bool:
    """Whether this is a row of sqlite_schema."""
    return len(values) == 5 and values[0] in ("table", "index") and isinstance(values[3], int)


_KINDS: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "TEXT": (str,), "BLOB": (bytes,), "ANY": (int, str, bytes)}


def _fits(values: Sequence[Any], columns: Sequence[_Column]) -> bool:
    """Whether a row of unknown origin can belong to a table with these columns."""
    return len(values) == len(columns) and all(
        column.is_row_id or column.may_be_null if value is None else isinstance(value, _KINDS.get(column.kind, ()))
        for value, column in zip(values, columns, strict=True)
    )
