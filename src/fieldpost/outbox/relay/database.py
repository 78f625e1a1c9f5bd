"""The application's database, as the relay uses it: transactions written once, run by three drivers.

A transaction is a generator that yields statements and receives their results, so that the same function runs over an
asynchronous driver (asyncpg) and over blocking ones (PyMySQL, `sqlite3`), which get their own thread. It may run
again after a failure of the database.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from fieldpost.core.errors import ConfigError, Unavailable
from fieldpost.outbox.relay.dialect import CompiledSql
from fieldpost.outbox.tables import OutboxDatabase
from fieldpost.system_error import reason_of

log = logging.getLogger("fieldpost.relay")

T = TypeVar("T")
ResultRow = Sequence[Any]
ATTEMPTS_MAX = 5
WAIT_S = 0.05
IDLE_S = 5.0
"""After how long the server ends an idle transaction of a relay that was frozen, so that others can claim its rows."""


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The rows that a statement returned, or the number that it changed."""

    rows: Sequence[ResultRow]
    count: int


@dataclass(frozen=True, slots=True)
class SqlStep:
    """One statement of a transaction with its parameters."""

    sql: CompiledSql
    parameters: Mapping[str, Any]


SqlTransaction = Generator[SqlStep, SqlResult, T]
TransactionMaker = Callable[[], SqlTransaction[T]]


class RelayDatabase(Protocol):
    """A connection to the application's database that is opened again when it is lost."""

    kind: OutboxDatabase

    async def run(self, make: TransactionMaker[T], *, is_read: bool = False) -> T:
        """Run a transaction and commit it. Raises Unavailable while the database is.

        A deadlock, a serialization failure or a lost connection is tried again a few times.
        """

    async def wait_for_hint(self, seconds: float) -> None:
        """Return when new rows were announced, at the latest after this time. A hint may be missing."""

    def wake(self) -> None:
        """Give a hint, from any thread."""

    async def close(self) -> None: ...


class TransientFault(Exception):
    """The database rolled a transaction back, or the connection is lost; running it again may succeed."""


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """The parsed URL of the application's database."""

    kind: OutboxDatabase
    url: str
    path: str = ""
    """The file of an SQLite database, or the name of a database."""
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""


_SCHEMES = {
    "postgresql": OutboxDatabase.POSTGRESQL,
    "postgres": OutboxDatabase.POSTGRESQL,
    "mariadb": OutboxDatabase.MARIADB,
    "mysql": OutboxDatabase.MARIADB,
    "sqlite": OutboxDatabase.SQLITE,
}


def parse_database(url: str) -> DatabaseTarget:
    """Parse the URL, also in SQLAlchemy's form with a driver (`postgresql+psycopg://`). Raises ConfigError."""
    if not url:
        raise ConfigError(
            "settings.missing",
            "relay.database is not set: the URL of the application's database",
            field="relay.database",
        )
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme.partition("+")[0], parts.port
    except ValueError:
        raise _bad("is not a valid URL") from None
    kind = _SCHEMES.get(scheme)
    if kind is None:
        raise _bad("must start with postgresql://, mariadb:// or sqlite:///")
    path = unquote(parts.path).removeprefix("/")
    if not path:
        raise _bad("must name a file" if kind is OutboxDatabase.SQLITE else "must name a database")
    if kind is OutboxDatabase.SQLITE:
        if parts.netloc:
            raise _bad("must be sqlite:////absolute/file or sqlite:///relative/file")
        return DatabaseTarget(kind, url, path)
    plain = scheme + url[len(parts.scheme) :]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return DatabaseTarget(kind, plain, path, parts.hostname or "", port or 0, user, password)


def missing_driver(package: str, extra: str) -> ConfigError:
    """The error for a driver that is not installed."""
    return ConfigError(
        "install.no_driver",
        f"the relay needs {package} for this database, and it is not installed",
        hint=f'pip install "fieldpost[{extra}]"',
    )


def unavailable(error: Exception) -> Unavailable:
    """The error when the database cannot be used now."""
    return Unavailable("outbox.database", f"the application's database is not available: {reason_of(error).strip()}")


async def try_again(attempt: Callable[[], Awaitable[T]]) -> T:
    """Run it, again after a transient fault with a random wait; at most ATTEMPTS_MAX times."""
    for number in range(1, ATTEMPTS_MAX + 1):
        try:
            return await attempt()
        except TransientFault as fault:
            if number == ATTEMPTS_MAX:
                raise unavailable(fault) from fault
            log.info("relay.transaction_repeated attempt=%d reason=%s", number, fault)
        await asyncio.sleep(WAIT_S * 2**number * random.random())
    raise AssertionError("unreachable")


def drive(transaction: SqlTransaction[T], execute: Callable[[SqlStep], SqlResult]) -> T:
    """Run the statements of a transaction one after another, on a blocking driver."""
    try:
        step = next(transaction)
        while True:
            step = transaction.send(execute(step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class WorkerThread:
    """The thread of a blocking driver: its connection belongs to it alone."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._executor.shutdown(wait=True)


class HintEvent:
    """A hint that can be given from any thread."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()


def _bad(rule: str) -> ConfigError:
    return ConfigError("settings.database", f"relay.database {rule}", field="relay.database")


def refuse_column(error: Exception) -> NoReturn:
    """Raise ConfigError for tables that are missing or lack columns."""
    raise ConfigError(
        "outbox.table",
        f"the tables of the outbox are not as the relay needs them: {error}",
        hint="fieldpost outbox ddl prints them; Outbox.create_tables creates and extends them",
    ) from error
