"""The embedded store: a SQLite file with one writer thread.

Functions that wait at the same time run each in its own savepoint within one BEGIN IMMEDIATE. They get their results
after the one COMMIT, so that a hundred small writes cost one fsync (group commit); a COMMIT that fails fails them all.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool, StaticPool

from fieldpost.central.store.engine.failures import recorded, translated
from fieldpost.central.store.engine.store import P, T, Transaction
from fieldpost.central.store.engine.wake import LocalWake, Wake
from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable

try:
    from pysqlite3 import dbapi2 as sqlite_module
except ImportError:  # no wheel for this platform: the standard library's, under the same one-writer rule
    import sqlite3 as sqlite_module

READERS = 4
BUSY_S = 30.0
"""How long to wait for a file that another process has locked."""
SWITCH_AGAIN_S = 0.01
LOG_BYTES_KEPT = 64 * 1024 * 1024
"""The size to which the write-ahead log shrinks again after a long read made it grow."""
WRITES_MAX = 256
"""How many waiting functions share one COMMIT."""


def sqlite_engine(url: URL, *, is_reader: bool = False, busy_s: float = BUSY_S) -> Engine:
    """An engine on the file, with the one SQLite library that this process uses for it."""
    if not is_reader:
        _make_private(Path(url.database or ""))
    engine = create_engine(
        url.set(drivername="sqlite"),
        module=sqlite_module,
        hide_parameters=True,
        connect_args={"check_same_thread": False, "timeout": busy_s, "isolation_level": None},
        **({"poolclass": QueuePool, "pool_size": READERS} if is_reader else {"poolclass": StaticPool}),
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        _use_log(connection, busy_s)
        for pragma in (
            "synchronous = FULL",
            f"journal_size_limit = {LOG_BYTES_KEPT}",
            "foreign_keys = ON",
            f"busy_timeout = {round(busy_s * 1000)}",
            "cache_size = -65536",
            "temp_store = MEMORY",
            f"query_only = {int(is_reader)}",
        ):
            connection.execute(f"pragma {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")

    return engine


def _use_log(connection: Any, busy_s: float) -> None:
    """Switch the file to its write-ahead log.

    While two processes switch a new file, SQLite fails for one of them without waiting, whatever the busy timeout is.
    """
    deadline = monotonic() + busy_s
    while True:
        try:
            connection.execute("pragma journal_mode = WAL").close()
            return
        except sqlite_module.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite_module.SQLITE_BUSY or monotonic() >= deadline:
                raise
            sleep(SWITCH_AGAIN_S)


def _make_private(file: Path) -> None:
    """Create a missing database file readable by its owner only, since it will hold the text of notifications.

    SQLite gives its log and index the same mode. An existing file keeps its mode and is not opened: closing it would
    drop the locks that this process may have on it.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


class SqliteStore:
    """One writer thread, which alone commits, and a pool of readers."""

    def __init__(self, url: URL, clock: Clock, busy_s: float = BUSY_S) -> None:
        self.url = url.render_as_string()
        self.wake: Wake = LocalWake()
        self.last_failure: Unavailable | None = None
        self._clock = clock
        self._log = Path(f"{url.database}-wal")
        self._writer = sqlite_engine(url, busy_s=busy_s)
        self._readers = sqlite_engine(url, is_reader=True)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._queue: SimpleQueue[tuple[Callable[[Connection], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._write_all, name="store-writer", daemon=True)
        self._thread.start()

    def now(self) -> datetime:
        return self._clock.now()

    async def write(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        future: Future[T] = Future()
        self._queue.put((lambda conn: function(conn, *args, **kwargs), future))
        with recorded(self):
            return await asyncio.wrap_future(future)

    async def write_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(function, *args, **kwargs)

    async def confirm(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # Readers see a commit only after its fsync.
        return await self.read(function, *args, **kwargs)

    async def read(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            try:
                with self._readers.connect() as conn:
                    return function(conn, *args, **kwargs)
            except OperationalError as error:
                raise translated(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    async def read_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.read(function, *args, **kwargs)

    def log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._pool.shutdown()
        self._readers.dispose()
        self._writer.dispose()

    def _write_all(self) -> None:
        """The writer thread: functions that wait at the same time are committed together."""
        with self._writer.connect() as conn:
            while (first := self._queue.get()) is not None:
                batch = [first]
                is_last = False
                while len(batch) < WRITES_MAX and not self._queue.empty():
                    if (item := self._queue.get()) is None:
                        is_last = True
                        break
                    batch.append(item)
                _commit_together(conn, batch)
                if is_last:
                    return


def _commit_together(conn: Connection, batch: list[tuple[Callable[[Connection], Any], Future[Any]]]) -> None:
    # Cancelled callers are left out. All others get an answer, even if BEGIN fails.
    batch = [(function, future) for function, future in batch if future.set_running_or_notify_cancel()]
    results: list[tuple[Future[Any], Any, BaseException | None]] = []
    try:
        with conn.begin():
            for function, future in batch:
                conn.exec_driver_sql("SAVEPOINT one")
                try:
                    result = function(conn)
                except Exception as error:
                    _roll_back_to_savepoint(conn, error)
                    results.append((future, None, translated(error)))
                else:
                    results.append((future, result, None))
                conn.exec_driver_sql("RELEASE one")
    except Exception as error:
        failure = translated(error)
        for _, future in batch:
            future.set_exception(failure)
        # A failed COMMIT may leave its transaction open, and after a failed fsync no later COMMIT on this connection
        # can be trusted: the next batch gets a new one.
        conn.rollback()
        conn.invalidate()
        return
    for future, result, failed in results:
        if failed is None:
            future.set_result(result)
        else:
            future.set_exception(failed)


def _roll_back_to_savepoint(conn: Connection, cause: Exception) -> None:
    try:
        conn.exec_driver_sql("ROLLBACK TO one")
    except OperationalError:
        # SQLite has rolled back the whole transaction, as it may when the disk is full: report that failure.
        raise cause from None
