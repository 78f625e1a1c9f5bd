"""One URL to a store: PostgreSQL over asyncpg, or a SQLite file behind one writer thread.

A transaction is a plain function on a synchronous Connection; `write` runs it and commits, `read` runs it on a
connection that cannot write. Each function is written once for both databases.

On SQLite the functions waiting together run each in its own savepoint within one BEGIN IMMEDIATE; their results are
handed out after the one COMMIT, so that a hundred small writes cost one fsync (group commit), and a failed COMMIT fails
them all. On PostgreSQL each is its own transaction. What the database says about a passing trouble (a deadlock, a
restart, a lost connection) is tried again here; every function of the store is safe to run twice.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import asyncpg
import structlog
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool, StaticPool

from fieldpost.central.store.engine.wake import LocalWake, PostgresWake, Wake
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.errors import ConfigError, Unavailable

try:
    from pysqlite3 import dbapi2 as sqlite_module
except ImportError:  # no wheel for this platform: the standard library's, under the same one-writer rule
    import sqlite3 as sqlite_module

P = ParamSpec("P")
T = TypeVar("T")
Transaction = Callable[Concatenate[Connection, P], T]

log = structlog.get_logger()

TRIES_MAX = 5
READERS = 4
BUSY_S = 30.0
"""How long a SQLite file that another process has locked is waited for."""
LOG_BYTES_KEPT = 64 * 1024 * 1024
"""To so much a SQLite log shrinks again that a long read had made grow."""
WRITES_MAX = 256
"""How many waiting functions share one COMMIT at most."""

# Serialization failure, deadlock, statement time-out, shutdown, crash recovery, idle-in-transaction time-out.
_PASSING = {"40001", "40P01", "57014", "57P01", "57P02", "57P03", "25P03"}
# Read-only, disk full, too many connections: not ours to mend, and no reason to lose anything.
_UNAVAILABLE: set[str | int | None] = {"25006", "53100", "53200", "53300"}
# SQLite's: busy, locked, out of memory, read-only, I/O error, corrupt, full, cannot open.
_UNAVAILABLE |= {5, 6, 7, 8, 10, 11, 13, 14}


class Store(Protocol):
    """The central store, whichever database it is."""

    url: str
    wake: Wake
    last_failure: Unavailable | None
    """Why the last write could not be done; None once one could. A node writes that it lives every few seconds."""

    async def write(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function in a transaction and commit it durably; Unavailable when the database cannot now."""

    async def write_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a function that is a single statement on PostgreSQL, which commits such a one by itself."""

    async def read(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function on a connection that cannot write."""

    async def read_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a function that is a single statement and only looks."""

    def now(self) -> datetime | None:
        """The time to hand to statements: None where the database's own clock is the referee."""

    def log_bytes(self) -> int | None:
        """How long the write-ahead log beside an embedded database is; None where the database tends its own."""

    async def close(self) -> None: ...


def open_store(url: str, clock: Clock | None = None) -> Store:
    """The store at this URL: `sqlite:///relative/file`, `sqlite:////absolute/file` or `postgresql://…`."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return SqliteStore(parsed, clock or SystemClock())
    return PostgresStore(parsed, clock)


def parse_url(url: str) -> URL:
    try:
        parsed = make_url(url)
    except Exception:
        raise ConfigError("store.url", "the store must be a URL such as sqlite:///fieldpost.db") from None
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError("store.url", f"the store must be sqlite or postgresql, not {parsed.get_backend_name()}")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigError("store.url", "the store must name a file: an in-memory database would lose what was acked")
    return parsed


def sqlite_engine(url: URL, *, is_reader: bool = False, busy_s: float = BUSY_S) -> Engine:
    """An engine on the file, by the one SQLite library this process uses for it."""
    if not is_reader:
        _make_private(Path(url.database or ""))
    engine = create_engine(
        url.set(drivername="sqlite"),
        module=sqlite_module,
        connect_args={"check_same_thread": False, "timeout": busy_s, "isolation_level": None},
        **({"poolclass": QueuePool, "pool_size": READERS} if is_reader else {"poolclass": StaticPool}),
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        for pragma in (
            "journal_mode = WAL",
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


def _make_private(file: Path) -> None:
    """A database that is not there yet is made for its owner alone, since it will hold what notifications say.

    Its log and index get the same mode from SQLite. One that is there keeps its mode, and is not even opened: closing
    it would drop the locks that this process may have on it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


_SETTINGS = {"synchronous_commit": "on", "timezone": "UTC", "application_name": "fieldpost", "jit": "off"}
"""Commits are durable whatever the server's default says."""
_PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "max_parallel_workers_per_gather": "0",
}
"""Every statement of the store finds its rows by an index, so its plan is made once and fits tables of any size. Left
alone, the planner would plan a claim anew each time, which costs more than the claim, or keep a plan that was made
while a table was small and reads all of it once it has grown; and starting a worker takes longer than any of them."""


def postgres_engine(url: URL, **options: Any) -> AsyncEngine:
    """An engine on PostgreSQL for the statements of the store."""
    return create_async_engine(
        url.set(drivername="postgresql+asyncpg"),
        connect_args={"server_settings": _SETTINGS | _PLANNING, "timeout": 10, "command_timeout": 60},
        **options,
    )


def postgres_engine_for_migrations(url: URL) -> AsyncEngine:
    """One for work on whole tables: planned as PostgreSQL sees fit, and it takes as long as it takes."""
    return create_async_engine(
        url.set(drivername="postgresql+asyncpg"), connect_args={"server_settings": _SETTINGS, "timeout": 10}
    )


class SqliteStore:
    """The embedded store: one writer thread that alone commits, readers beside it."""

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
        with _noting_trouble(self):
            return await asyncio.wrap_future(future)

    async def write_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write(function, *args, **kwargs)

    async def read(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def run() -> T:
            try:
                with self._readers.connect() as conn:
                    return function(conn, *args, **kwargs)
            except OperationalError as error:
                raise _translated(error) from error

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
        """The writer thread: whatever waits together is committed together."""
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
    # Whoever gave up while it waited is left out; all others are answered whatever happens, BEGIN failing included.
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
                    results.append((future, None, _translated(error)))
                else:
                    results.append((future, result, None))
                conn.exec_driver_sql("RELEASE one")
    except Exception as error:
        failure = _translated(error)
        for _, future in batch:
            future.set_exception(failure)
        # A COMMIT that failed may leave its transaction open, and one whose fsync failed must never be followed by a
        # good one on the same connection: the next batch gets a fresh one.
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
        # SQLite has given up the whole transaction by itself, as it may when the disk is full: that is what failed.
        raise cause from None


class PostgresStore:
    """PostgreSQL, by any number of central nodes."""

    def __init__(self, url: URL, clock: Clock | None, connections_max: int = 10, wait_s: float = 10.0) -> None:
        self.url = url.render_as_string()
        self._clock = clock
        self._engine = postgres_engine(url, pool_size=connections_max, max_overflow=0, pool_timeout=wait_s)
        # The same connections, on which each statement commits by itself.
        self._committing = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self.wake: Wake = PostgresWake(url)
        self.last_failure: Unavailable | None = None

    def now(self) -> datetime | None:
        return self._clock.now() if self._clock else None

    async def write(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with _noting_trouble(self):
            return await self._run(lambda conn: function(conn, *args, **kwargs))

    async def write_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        # Without BEGIN and COMMIT around it: two conversations with the database fewer.
        with _noting_trouble(self):
            return await self._run(lambda conn: function(conn, *args, **kwargs), self._committing)

    async def read(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda conn: function(conn, *args, **kwargs), is_reader=True)

    async def read_one(self, function: Transaction[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(lambda conn: function(conn, *args, **kwargs), self._committing)

    def log_bytes(self) -> None:
        return None

    async def close(self) -> None:
        await self.wake.close()
        await self._engine.dispose()

    async def _run(
        self, function: Callable[[Connection], T], engine: AsyncEngine | None = None, *, is_reader: bool = False
    ) -> T:
        for tries in range(1, TRIES_MAX + 1):
            try:
                async with (engine or self._engine).connect() as conn:
                    if is_reader:
                        await conn.execution_options(postgresql_readonly=True)
                    result = await conn.run_sync(function)
                    await conn.commit()
                    return result
            except (DBAPIError, PoolTimeout, OSError) as error:
                if not _is_passing(error) or tries == TRIES_MAX:
                    raise _translated(error) from error
                log.warning("store.tried_again", error=_first_line(error), tries=tries)
                await SystemClock().sleep(random.uniform(0.5, 1.0) * 0.05 * 2**tries)
        raise AssertionError("unreachable")


@contextmanager
def _noting_trouble(store: Store) -> Iterator[None]:
    """Around a write: whether it found the database willing."""
    try:
        yield
    except Unavailable as error:
        store.last_failure = error
        raise
    store.last_failure = None


def _is_passing(error: Exception) -> bool:
    if isinstance(error, DBAPIError):
        # Class 08: the connection was lost; while it is being made, nothing else says so.
        state = _sqlstate(error) or ""
        return error.connection_invalidated or state in _PASSING or state.startswith("08") or _is_confused(error)
    return isinstance(error, OSError)


def _is_confused(error: DBAPIError) -> bool:
    """Whether the driver lost its own thread, as it does when a connection ends while it is being made."""
    cause = error.orig.__cause__ if error.orig is not None else None
    return isinstance(cause, asyncpg.InternalClientError)


def _translated(error: Exception) -> Exception:
    """Unavailable for what the database is to blame for; our own mistakes stay what they are."""
    if isinstance(error, DBAPIError):
        codes = {_sqlstate(error), _sqlite_code(error)}
        return _unavailable(error) if _is_passing(error) or codes & _UNAVAILABLE else error
    return _unavailable(error) if isinstance(error, PoolTimeout | OSError) else error


def _sqlite_code(error: DBAPIError) -> int | None:
    code = getattr(error.orig, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # without what extends it


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(
        "store.unavailable",
        f"the central store cannot be used now: {_first_line(error)}",
        hint="nothing was lost; whoever sent it keeps it and tries again",
    )


def _first_line(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(cause).strip().splitlines()[0][:300] if str(cause).strip() else type(cause).__name__
