"""An SQLite file that writes go to. The file must be there: a database that we made up would have none of its tables.

Everything happens in one thread of the target's own, since SQLite blocks. The thread keeps to the deadline by itself: a
lock is waited for and a statement runs only as long as there is time, and a turn that comes too late does nothing.
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
from fieldpost.site.config.definitions import Database
from fieldpost.site.config.statements import DefinedStatement

ERROR_BYTES_MAX = 500
MARGIN_S = 1.0
"""The thread ends by itself at the deadline; only a disk that hangs keeps it longer."""
_STEPS_BETWEEN_LOOKS = 10_000

# What a healthy database would say again of the same write; all else is the file's trouble and not the write's.
REFUSALS = (
    apsw.SQLError,  # syntax, no such table or column
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.RangeError,
    apsw.BindingsError,
)


def judge(name: str, error: apsw.Error) -> CarrierAnswer:
    """What an error of SQLite means for the write."""
    text = f"{name}: {truncate(str(error), ERROR_BYTES_MAX)}"
    return Refused("database.refused", text) if isinstance(error, REFUSALS) else NotNow(text)


class SqliteTarget:
    """One SQLite file, with one connection that is made anew when the file is another."""

    def __init__(self, definition: Database, path: Path, clock: Clock) -> None:
        self._definition = definition
        self._path = path
        self._clock = clock
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._hands = ThreadPoolExecutor(1, thread_name_prefix=f"fieldpost-{definition.name}")

    async def write(
        self, statement: DefinedStatement, values: Sequence[Scalar], password: Secret | None
    ) -> CarrierAnswer:
        ends_at = self._clock.monotonic() + self._definition.timeout_s
        turn = asyncio.get_running_loop().run_in_executor(self._hands, self._turn, statement, values, ends_at)
        try:
            async with asyncio.timeout(self._definition.timeout_s + MARGIN_S):
                return await asyncio.shield(turn)
        except TimeoutError:
            return NotNow(
                f"{self._definition.name}: the disk gave no answer within {self._definition.timeout_s:g} s; "
                "it may have been carried out all the same"
            )

    async def close(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._hands, self._drop)
        except RuntimeError:
            # The process is ending, and its threads have ended: nobody else has the connection.
            self._drop()
        self._hands.shutdown(wait=False)

    def _turn(self, statement: DefinedStatement, values: Sequence[Scalar], ends_at: float) -> CarrierAnswer:
        name = self._definition.name
        try:
            connection = self._opened()
            if not self._allow_until(connection, ends_at):
                return NotNow(f"{name}: no turn within {self._definition.timeout_s:g} s")
            # Immediate: the lock is waited for before anything is read, so that it never turns out to be too late.
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
            return NotNow(f"{name}: the statement was not done within {self._definition.timeout_s:g} s")
        except apsw.Error as error:
            answer = judge(name, error)
            if isinstance(answer, NotNow) and not isinstance(error, apsw.BusyError):
                self._drop()
            return answer
        except OSError as error:
            return NotNow(f"{name}: {self._path} cannot be opened: {error.strerror}")
        return Taken()

    def _allow_until(self, connection: apsw.Connection, ends_at: float) -> bool:
        """Let SQLite wait and work until then; False when that is over."""
        left_s = ends_at - self._clock.monotonic()
        connection.set_busy_timeout(max(1, round(left_s * 1000)))
        connection.set_progress_handler(lambda: self._clock.monotonic() >= ends_at, _STEPS_BETWEEN_LOOKS)
        return left_s > 0

    def _opened(self) -> apsw.Connection:
        """The connection to the file that is there now: one that was put in its place is another file."""
        found = os.stat(self._path)
        identity = (found.st_dev, found.st_ino)
        if self._connection is None or self._identity != identity:
            self._drop()
            connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.set_busy_timeout(round(self._definition.timeout_s * 1000))
                # Delivered means on disk, and the constraints that the file declares hold.
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
