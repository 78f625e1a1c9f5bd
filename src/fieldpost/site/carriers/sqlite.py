"""An SQLite file as target of writes. The file must exist: a new one would have no tables.

Each file has one worker thread, since SQLite blocks. The thread enforces the deadline: it waits for a lock and runs a
statement only until then, and a write whose turn comes too late does nothing.
"""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw

from fieldpost.clock import Clock
from fieldpost.core.secret import Secret
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Refused, Taken
from fieldpost.core.text import truncate
from fieldpost.site.carriers.payloads import Scalar
from fieldpost.site.config.database import Database
from fieldpost.site.config.statements import DefinedStatement

ERROR_BYTES_MAX = 500
MARGIN_S = 1.0
"""How long to wait for the thread after the deadline; only a hanging disk delays it."""
_STEPS_BETWEEN_CHECKS = 10_000

# Errors that a healthy database would repeat for the same write; all others are problems of the file.
REFUSALS = (
    apsw.SQLError,  # syntax, no such table or column
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.RangeError,
    apsw.BindingsError,
)


def judge(name: str, error: apsw.Error) -> CarrierAnswer:
    """The answer for an error of SQLite."""
    text = f"{name}: {truncate(str(error), ERROR_BYTES_MAX)}"
    return Refused("database.refused", text) if isinstance(error, REFUSALS) else NotNow(text)


class SqliteTarget:
    """One SQLite file with one connection, which is reopened if the file is replaced."""

    def __init__(self, definition: Database, path: Path, clock: Clock) -> None:
        self._definition = definition
        self._path = path
        self._clock = clock
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"fieldpost-{definition.name}")

    async def write(
        self, statement: DefinedStatement, values: Sequence[Scalar], password: Secret | None
    ) -> CarrierAnswer:
        ends_at = self._clock.monotonic() + self._definition.timeout_s
        write = asyncio.get_running_loop().run_in_executor(self._thread, self._write, statement, values, ends_at)
        try:
            async with asyncio.timeout(self._definition.timeout_s + MARGIN_S):
                return await asyncio.shield(write)
        except TimeoutError:
            return NotNow(
                f"{self._definition.name}: the disk did not answer within {self._definition.timeout_s:g} s; "
                "the write may have been carried out"
            )

    async def close(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        except RuntimeError:
            # The process is exiting and its threads have ended: nothing else uses the connection.
            self._drop()
        self._thread.shutdown(wait=False)

    def _write(self, statement: DefinedStatement, values: Sequence[Scalar], ends_at: float) -> CarrierAnswer:
        name = self._definition.name
        try:
            connection = self._opened()
            if not self._allow_until(connection, ends_at):
                return NotNow(f"{name}: other writes took longer than {self._definition.timeout_s:g} s")
            # IMMEDIATE takes the write lock before the first read, so that an upgrade of the lock cannot fail.
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(statement.sql, tuple(values)).fetchall()
                self._allow_until(connection, ends_at)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
                raise
        except apsw.InterruptError:
            return NotNow(f"{name}: the statement did not finish within {self._definition.timeout_s:g} s")
        except apsw.Error as error:
            answer = judge(name, error)
            if isinstance(answer, NotNow) and not isinstance(error, apsw.BusyError):
                self._drop()
            return answer
        except OSError as error:
            return NotNow(f"{name}: {self._path} cannot be opened: {error.strerror}")
        return Taken()

    def _allow_until(self, connection: apsw.Connection, ends_at: float) -> bool:
        """Let SQLite wait and work until `ends_at`; False if that has passed."""
        left_s = ends_at - self._clock.monotonic()
        connection.set_busy_timeout(max(1, round(left_s * 1000)))
        connection.set_progress_handler(lambda: self._clock.monotonic() >= ends_at, _STEPS_BETWEEN_CHECKS)
        return left_s > 0

    def _opened(self) -> apsw.Connection:
        """The connection to the file that has the name now, reopened if the file was replaced."""
        found = os.stat(self._path)
        identity = (found.st_dev, found.st_ino)
        if self._connection is None or self._identity != identity:
            self._drop()
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(round(self._definition.timeout_s * 1000))
                # Delivered means on disk, and declared foreign keys must hold.
                connection.execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON")
            except BaseException:
                connection.close(True)
                raise
            self._connection, self._identity = connection, identity
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)
