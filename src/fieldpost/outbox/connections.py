"""Recognising an application's connection, without importing its library.

A connection belongs to a *driver*: how to find the database behind it, how to check that it is inside a transaction,
and how to execute a statement on it. Drivers are found by the names of the connection's classes, so that a library is
never imported for an application that does not use it.

The rule of every driver (DEC-55, DEC-85): the INSERT must commit or roll back together with the caller's own writes. A
connection that would commit it alone is rejected, and so is one that is closed or whose transaction has failed.
"""

from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from fieldpost.core.errors import ConfigError, Conflict, FieldpostError, InvalidInput
from fieldpost.outbox.tables import OutboxDatabase


class SqlDialect(NamedTuple):
    """How a statement for this connection is written."""

    database: OutboxDatabase
    style: str
    """Placeholders: `?`, `%s` or `$` (`$1`, `$2`, …)."""


class Driver(Protocol):
    """How statements reach a kind of connection. The methods take the connection that `resolve` returns."""

    def resolve(self, connection: Any) -> Any:
        """The connection to execute on. Raises Conflict if it is closed."""

    def check(self, connection: Any) -> None:
        """Raise Conflict unless the next statement belongs to a transaction of the caller."""

    def dialect(self, connection: Any) -> SqlDialect: ...

    def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None: ...

    def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]: ...


class AsyncDriver(Protocol):
    """The same for connections whose methods are coroutines."""

    async def resolve(self, connection: Any) -> Any: ...

    async def check(self, connection: Any) -> None: ...

    def dialect(self, connection: Any) -> SqlDialect: ...

    async def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None: ...

    async def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]: ...


_SYNC = {
    "sqlite3.Connection": "dbapi:SQLITE3",
    "pysqlite3.dbapi2.Connection": "dbapi:SQLITE3",
    "psycopg.Connection": "dbapi:PSYCOPG",
    "pymysql.connections.Connection": "dbapi:PYMYSQL",
    "sqlalchemy.engine.base.Connection": "sqlalchemy:CORE",
    "sqlalchemy.orm.session.Session": "sqlalchemy:ORM",
    "sqlalchemy.orm.scoping.scoped_session": "sqlalchemy:ORM",
    "builtins.str": "django:DJANGO",
    "django.db.backends.base.base.BaseDatabaseWrapper": "django:DJANGO",
    "django.utils.connection.ConnectionProxy": "django:DJANGO",
}
_ASYNC = {
    "asyncpg.connection.Connection": "asynchronous:ASYNCPG",
    "asyncpg.pool.PoolConnectionProxy": "asynchronous:ASYNCPG",
    "psycopg.AsyncConnection": "asynchronous:ASYNC_PSYCOPG",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "sqlalchemy:ASYNC_CORE",
    "sqlalchemy.ext.asyncio.session.AsyncSession": "sqlalchemy:ASYNC_ORM",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": "sqlalchemy:ASYNC_ORM",
}
_INSTEAD = {
    "sqlalchemy.engine.base.Engine": "pass a connection of it: `with engine.begin() as connection`",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "pass a connection of it: `async with engine.begin() as connection`",
    "sqlalchemy.orm.session.sessionmaker": "pass a session of it",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "pass a session of it",
    "asyncpg.pool.Pool": "pass a connection of it: `async with pool.acquire() as connection, connection.transaction()`",
    "psycopg_pool.pool.ConnectionPool": "pass a connection of it: `with pool.connection() as connection`",
    "psycopg_pool.pool_async.AsyncConnectionPool": "pass a connection of it: `async with pool.connection()`",
    "sqlite3.Cursor": "pass the connection, not a cursor",
    "psycopg.Cursor": "pass the connection, not a cursor",
    "psycopg.AsyncCursor": "pass the connection, not a cursor",
    "pymysql.cursors.Cursor": "pass the connection, not a cursor",
}
_KNOWN = (
    "connections and sessions of SQLAlchemy, connections of psycopg, sqlite3, PyMySQL and asyncpg,"
    " and the alias of a Django database"
)


def driver_of(connection: object) -> Driver:
    """The driver of this connection; raises InvalidInput if it has none."""
    kind: Any = type(connection)
    return _driver(kind)


def async_driver_of(connection: object) -> AsyncDriver:
    """The driver of this asynchronous connection; raises InvalidInput if it has none."""
    kind: Any = type(connection)
    return _async_driver(kind)


@lru_cache(maxsize=64)
def _driver(kind: type) -> Driver:
    return cast(Driver, _find(kind, _SYNC, _ASYNC, "is asynchronous: use `await Outbox.add_async(…)`"))


@lru_cache(maxsize=64)
def _async_driver(kind: type) -> AsyncDriver:
    return cast(AsyncDriver, _find(kind, _ASYNC, _SYNC, "is synchronous: use `Outbox.add(…)`"))


def _find(kind: type, drivers: dict[str, str], others: dict[str, str], advice: str) -> object:
    names = [f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__]
    for name in names:
        if name in drivers:
            module, _, attribute = drivers[name].partition(":")
            return getattr(import_module(f"fieldpost.outbox.drivers.{module}"), attribute)
        if name in others:
            raise InvalidInput("outbox.connection", f"this connection ({names[0]}) {advice}", field="connection")
    hint = next((_INSTEAD[name] for name in names if name in _INSTEAD), f"accepted: {_KNOWN}")
    raise InvalidInput("outbox.connection", f"{names[0]} is not a connection", field="connection", hint=hint)


def unsupported(name: str) -> InvalidInput:
    """The error for a connection to another kind of database."""
    return InvalidInput(
        "outbox.database",
        f"the outbox needs PostgreSQL, SQLite or MariaDB, and this connection is to {name}",
        field="connection",
    )


def closed() -> Conflict:
    """The error for a closed connection."""
    return Conflict("outbox.closed", "the connection is closed; the event was not written", field="connection")


def autocommit(hint: str) -> Conflict:
    """The error for a connection that would commit the event without the caller's data."""
    return Conflict(
        "outbox.autocommit",
        "the connection is in autocommit mode and has no open transaction, so the event would be committed on its own",
        field="connection",
        hint=hint,
    )


def failed() -> Conflict:
    """The error for a transaction that can only be rolled back."""
    return Conflict(
        "outbox.failed_transaction",
        "the transaction has failed and can only be rolled back; the event was not written",
        field="connection",
    )


def ended() -> Conflict:
    """The error for a block whose transaction was committed or rolled back inside it."""
    return Conflict(
        "outbox.ended_transaction",
        "the transaction of this block has ended; the event was not written",
        field="connection",
        hint="leave the block, and add the event in a new one",
    )


_MISSING = {"42P01", "42703", "42S02", "42S22", 1146, 1054}
"""The codes of PostgreSQL and MariaDB for a missing table or column."""


def explained(error: Exception) -> FieldpostError | None:
    """The error of a driver in our terms, or None if it is not about the outbox."""
    original = getattr(error, "orig", None) or error.__cause__ or error
    for one in (error, original, original.__cause__):
        code = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None) or (getattr(one, "args", None) or (0,))[0]
        if code == "25P02":
            return failed()
        text = str(code)
        if code in _MISSING or "no such table: event_outbox" in text or "event_outbox has no column" in text:
            return ConfigError(
                "outbox.no_table",
                f"the table event_outbox is missing or lacks columns: {error}",
                hint="create it with `Outbox.create_tables` or a migration; `fieldpost outbox ddl` prints the SQL",
            )
    return None
