"""The relay's connection to SQLite, in its own thread.

A transaction that writes begins with BEGIN IMMEDIATE, so that it never fails halfway; it waits a while for another
writer and is then given up as busy. In an application's process the relay uses the SQLite module of the application:
two libraries on one file break each other's locks.
"""

import logging
import sqlite3
from types import ModuleType
from typing import Any, TypeVar

from fieldpost.core.errors import Unavailable
from fieldpost.outbox.relay.database import (
    DatabaseTarget,
    HintEvent,
    SqlResult,
    SqlStep,
    TransactionMaker,
    WorkerThread,
    drive,
    refuse_column,
    unavailable,
)
from fieldpost.outbox.tables import OutboxDatabase

log = logging.getLogger("fieldpost.relay")

T = TypeVar("T")
BUSY_S = 5.0


def newest_sqlite() -> ModuleType:
    """The module with the newest SQLite library, for our own processes."""
    try:
        import pysqlite3
    except ImportError:
        return sqlite3
    return pysqlite3 if pysqlite3.sqlite_version_info > sqlite3.sqlite_version_info else sqlite3


class SqliteOutbox:
    """One connection to an SQLite file."""

    kind = OutboxDatabase.SQLITE

    def __init__(self, target: DatabaseTarget, module: ModuleType | None = None, *, busy_s: float = BUSY_S) -> None:
        self._path = target.path
        self._module: Any = module or sqlite3
        self._busy_s = busy_s
        self._thread = WorkerThread("fieldpost-relay-sqlite")
        self._connection: Any = None
        self._hint = HintEvent()

    async def run(self, make: TransactionMaker[T], *, is_read: bool = False) -> T:
        return await self._thread.run(lambda: self._attempt(make, is_read))

    async def wait_for_hint(self, seconds: float) -> None:
        await self._hint.wait(seconds)

    def wake(self) -> None:
        self._hint.set()

    async def close(self) -> None:
        def close() -> None:
            if self._connection is not None:
                self._connection.close()

        await self._thread.run(close)
        self._thread.close()

    def _attempt(self, make: TransactionMaker[T], is_read: bool) -> T:
        try:
            if self._connection is None:
                # Without mode=rw a wrong path would create an empty database.
                self._connection = self._module.connect(
                    f"file:{_quoted(self._path)}?mode=rw", uri=True, timeout=self._busy_s, isolation_level=None
                )
                # One text that is not UTF-8 must not make the other rows unreadable; its row is rejected later.
                self._connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            self._connection.execute("begin" if is_read else "begin immediate")
            try:
                result = drive(make(), self._execute)
                self._connection.execute("commit")
            except BaseException:
                self._roll_back()
                raise
            return result
        except self._module.Error as error:
            raise self._classified(error) from error

    def _execute(self, step: SqlStep) -> SqlResult:
        cursor = self._connection.execute(step.sql.text, {name: step.parameters[name] for name in step.sql.names})
        rows = cursor.fetchall()
        return SqlResult(rows, cursor.rowcount if cursor.rowcount >= 0 else len(rows))

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")

    def _classified(self, error: Exception) -> Exception:
        text = str(error)
        if isinstance(error, self._module.OperationalError):
            if text.startswith(("no such table", "no such column")):
                refuse_column(error)
            if "locked" in text or "busy" in text:
                return Unavailable(
                    "outbox.busy", f"another connection has held the database's write lock for {self._busy_s:g} s"
                )
        return unavailable(error)


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
