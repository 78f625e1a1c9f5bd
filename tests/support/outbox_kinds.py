"""Every kind of connection that an application may hand to the outbox, behind one interface for tests.

A kind opens transactions, savepoints and unusable connections the way an application does with that library. Its
methods are synchronous: asynchronous libraries run on a loop of the kind's own.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, ClassVar

from fieldpost.outbox import Outbox
from fieldpost.testing import AddedEvent, outbox_events, outbox_events_async
from support.mariadb import connect as connect_mariadb

OWN_TABLE = "create table things (id integer primary key)"


class Rollback(Exception):
    """Raised to roll back."""


@contextmanager
def rolled_back(block: AbstractContextManager[Any]) -> Iterator[Any]:
    """Leave a transaction or savepoint with an exception."""
    with suppress(Rollback), block as connection:
        yield connection
        raise Rollback


class Kind:
    """One library, on one database."""

    has_failed_state = False
    """Whether a failed statement leaves a transaction that can only be rolled back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.open()

    def open(self) -> None:
        """Prepare engines and pools."""

    def close(self) -> None:
        """Dispose of them."""

    def transaction(self) -> Any:
        """A connection in a transaction that commits at the end, or rolls back with an exception."""
        raise NotImplementedError

    def savepoint(self, connection: Any) -> Any:
        raise NotImplementedError

    def autocommit(self) -> Any:
        """A connection that commits each statement and has no open transaction."""
        raise NotImplementedError

    def closed(self) -> Any:
        """A closed connection."""
        raise NotImplementedError

    def execute(self, connection: Any, statement: str) -> None:
        """An own statement of the application."""
        raise NotImplementedError

    def fail(self, connection: Any) -> None:
        """Let a statement of the application fail."""
        with suppress(Exception):
            self.execute(connection, "select nonsense")

    def add(self, connection: Any, *arguments: Any, **options: Any) -> str:
        return Outbox.add(connection, *arguments, **options)

    def added(self, connection: Any) -> list[AddedEvent]:
        """The events that this connection sees."""
        return outbox_events(connection)

    def create_tables(self, connection: Any) -> list[str]:
        return Outbox.create_tables(connection)

    def query(self, statement: str) -> list[Any]:
        """What another connection sees."""
        if self.url.startswith("sqlite"):
            with sqlite3.connect(self.url.removeprefix("sqlite:///")) as connection:
                found = list(connection.execute(statement))
            connection.close()
            return found
        if self.url.startswith("mariadb"):
            with connect_mariadb(self.url) as connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        import psycopg

        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).fetchall()

    @property
    def events(self) -> set[str]:
        """The ids of the committed events."""
        return {str(row[0]) for row in self.query("select event_outbox_id from event_outbox")}

    @property
    def things(self) -> set[int]:
        return {row[0] for row in self.query("select id from things")}


class Sqlite3(Kind):
    def _connect(self, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(self.url.removeprefix("sqlite:///"), **options)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        connection = self._connect()
        with connection:
            yield connection
        connection.close()

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        yield from _savepoint(connection.execute)

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        connection = self._connect(isolation_level=None)
        yield connection
        connection.close()

    @contextmanager
    def closed(self) -> Iterator[Any]:
        connection = self._connect()
        connection.close()
        yield connection

    def execute(self, connection: Any, statement: str) -> None:
        connection.execute(statement)


class Psycopg(Kind):
    has_failed_state = True

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(self.url) as connection:
            yield connection

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        with connection.transaction():
            yield

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            yield connection

    @contextmanager
    def closed(self) -> Iterator[Any]:
        with self.transaction() as connection:
            pass
        yield connection

    def execute(self, connection: Any, statement: str) -> None:
        connection.execute(statement)


class PsycopgTransaction(Psycopg):
    """In autocommit mode, inside `transaction()`."""

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.autocommit() as connection, connection.transaction():
            yield connection

    @contextmanager
    def closed(self) -> Iterator[Any]:
        with self.autocommit() as connection:
            pass
        yield connection


class PyMysql(Kind):
    @contextmanager
    def transaction(self) -> Iterator[Any]:
        connection = connect_mariadb(self.url)
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        yield from _savepoint(lambda statement: self.execute(connection, statement))

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        with connect_mariadb(self.url, autocommit=True) as connection:
            yield connection

    @contextmanager
    def closed(self) -> Iterator[Any]:
        connection = connect_mariadb(self.url)
        connection.close()
        yield connection

    def execute(self, connection: Any, statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)


class Core(Kind):
    """SQLAlchemy's connections, by psycopg, sqlite3 or PyMySQL."""

    def open(self) -> None:
        from sqlalchemy import create_engine

        self.has_failed_state = self.url.startswith("postgresql")
        drivers = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}
        scheme, _, rest = self.url.partition("://")
        self.engine = create_engine(f"{drivers[scheme]}://{rest}")

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        with connection.begin_nested():
            yield

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        with self.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            yield connection

    @contextmanager
    def closed(self) -> Iterator[Any]:
        with self.engine.connect() as connection:
            pass
        yield connection

    def execute(self, connection: Any, statement: str) -> None:
        from sqlalchemy import text

        connection.execute(text(statement))


class Orm(Core):
    """SQLAlchemy's sessions."""

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        from sqlalchemy.orm import Session

        with Session(self.engine) as session, session.begin():
            yield session

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        from sqlalchemy.orm import Session

        with Session(self.engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
            yield session

    @contextmanager
    def closed(self) -> Iterator[Any]:
        from sqlalchemy.orm import Session

        session = Session(self.engine, close_resets_only=False)
        session.close()
        yield session


class AsyncKind(Kind):
    """Runs an asynchronous library on its own loop."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        super().__init__(url)

    def close(self) -> None:
        self.runner.run(self.close_async())
        self.runner.close()

    async def close_async(self) -> None:
        """Dispose of engines and pools."""

    def add(self, connection: Any, *arguments: Any, **options: Any) -> str:
        return self.runner.run(Outbox.add_async(connection, *arguments, **options))

    def added(self, connection: Any) -> list[AddedEvent]:
        return self.runner.run(outbox_events_async(connection))

    def create_tables(self, connection: Any) -> list[str]:
        return self.runner.run(Outbox.create_tables_async(connection))

    def execute(self, connection: Any, statement: str) -> None:
        self.runner.run(self.execute_async(connection, statement))

    async def execute_async(self, connection: Any, statement: str) -> None:
        await connection.execute(statement)

    def transaction(self) -> Any:
        return self.entered(self.transaction_async())

    def savepoint(self, connection: Any) -> Any:
        return self.entered(self.savepoint_async(connection))

    def autocommit(self) -> Any:
        return self.entered(self.autocommit_async())

    def closed(self) -> Any:
        return self.entered(self.closed_async())

    def transaction_async(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    def savepoint_async(self, connection: Any) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    def autocommit_async(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    def closed_async(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        async def enter() -> Any:
            return await manager.__aenter__()

        async def leave(error: BaseException | None) -> bool | None:
            return await manager.__aexit__(type(error) if error else None, error, None)

        value = self.runner.run(enter())
        try:
            yield value
        except BaseException as error:
            if not self.runner.run(leave(error)):
                raise
        else:
            self.runner.run(leave(None))


class Asyncpg(AsyncKind):
    has_failed_state = True

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        import asyncpg

        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        async with self.connection() as connection, connection.transaction():
            yield connection

    def savepoint_async(self, connection: Any) -> Any:
        return connection.transaction()

    def autocommit_async(self) -> Any:
        return self.connection()

    @asynccontextmanager
    async def closed_async(self) -> AsyncIterator[Any]:
        async with self.connection() as connection:
            pass
        yield connection


class AsyncpgBehindPooler(Asyncpg):
    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        import asyncpg

        connection = await asyncpg.connect(self.url, statement_cache_size=0)
        try:
            yield connection
        finally:
            await connection.close()


class AsyncpgPool(Asyncpg):
    def open(self) -> None:
        import asyncpg

        self.pool = self.runner.run(_awaited(lambda: asyncpg.create_pool(self.url, min_size=0, max_size=2)))

    async def close_async(self) -> None:
        await self.pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        async with self.pool.acquire() as connection:
            yield connection


class AsyncPsycopg(AsyncKind):
    has_failed_state = True

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        import psycopg

        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            yield connection

    def savepoint_async(self, connection: Any) -> Any:
        return connection.transaction()

    @asynccontextmanager
    async def autocommit_async(self) -> AsyncIterator[Any]:
        import psycopg

        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            yield connection

    @asynccontextmanager
    async def closed_async(self) -> AsyncIterator[Any]:
        async with self.transaction_async() as connection:
            pass
        yield connection


class AsyncCore(AsyncKind):
    """SQLAlchemy's asynchronous connections, by asyncpg or aiosqlite."""

    drivers: ClassVar = {"postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}

    def open(self) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        self.has_failed_state = self.url.startswith("postgresql")
        scheme, _, rest = self.url.partition("://")
        self.engine = create_async_engine(f"{self.drivers[scheme]}://{rest}")

    async def close_async(self) -> None:
        await self.engine.dispose()

    async def execute_async(self, connection: Any, statement: str) -> None:
        from sqlalchemy import text

        await connection.execute(text(statement))

    def transaction_async(self) -> Any:
        return self.engine.begin()

    def savepoint_async(self, connection: Any) -> Any:
        return connection.begin_nested()

    def autocommit_async(self) -> Any:
        return self.engine.execution_options(isolation_level="AUTOCOMMIT").connect()

    @asynccontextmanager
    async def closed_async(self) -> AsyncIterator[Any]:
        async with self.engine.connect() as connection:
            pass
        yield connection


class AsyncCorePsycopg(AsyncCore):
    drivers: ClassVar = {"postgresql": "postgresql+psycopg"}


class AsyncOrm(AsyncCore):
    """SQLAlchemy's asynchronous sessions."""

    @asynccontextmanager
    async def transaction_async(self) -> AsyncIterator[Any]:
        from sqlalchemy.ext.asyncio import AsyncSession

        async with AsyncSession(self.engine) as session, session.begin():
            yield session

    @asynccontextmanager
    async def autocommit_async(self) -> AsyncIterator[Any]:
        from sqlalchemy.ext.asyncio import AsyncSession

        async with AsyncSession(self.engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
            yield session

    @asynccontextmanager
    async def closed_async(self) -> AsyncIterator[Any]:
        from sqlalchemy.ext.asyncio import AsyncSession

        session = AsyncSession(self.engine, close_resets_only=False)
        await session.close()
        yield session


class Django(Kind):
    """Django's databases, by alias."""

    alias = "outbox"

    def open(self) -> None:
        self.has_failed_state = True
        configure_django({self.alias: django_database(self.url)})

    def close(self) -> None:
        forget_django(self.alias)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            yield self.alias

    @contextmanager
    def savepoint(self, connection: Any) -> Iterator[None]:
        from django.db import transaction

        with transaction.atomic(using=self.alias):
            yield

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        yield self.alias

    @contextmanager
    def closed(self) -> Iterator[Any]:
        from django.db import connections, transaction

        with suppress(Exception), transaction.atomic(using=self.alias):
            connections[self.alias].close()
            yield self.alias

    def fail(self, connection: Any) -> None:
        from django.db import transaction

        with suppress(Exception), transaction.atomic(using=self.alias, savepoint=False):
            self.execute(connection, "select nonsense")

    def execute(self, connection: Any, statement: str) -> None:
        from django.db import connections

        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement)


def configure_django(databases: dict[str, dict[str, Any]]) -> None:
    """Add databases to Django's settings, which a process configures once."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        import pymysql

        pymysql.install_as_MySQLdb()
        settings.configure(
            DATABASES={}, INSTALLED_APPS=["fieldpost.outbox.integrations.django"], USE_TZ=True, SECRET_KEY="tests"
        )
        django.setup()
    connections.settings.update(connections.configure_settings({**connections.settings, **databases}))


def forget_django(*aliases: str) -> None:
    from django.db import connections

    for alias in aliases:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def django_database(url: str) -> dict[str, Any]:
    """The entry of DATABASES for this URL."""
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url.removeprefix("sqlite:///")}
    engine = {"postgresql": "django.db.backends.postgresql", "mariadb": "django.db.backends.mysql"}[parts.scheme]
    host = parts.hostname or parse_qs(parts.query)["host"][0]
    return {
        **{"ENGINE": engine, "NAME": parts.path[1:], "USER": parts.username or "", "HOST": host},
        "PORT": str(parts.port or ""),
    }


def _savepoint(execute: Callable[[str], Any]) -> Iterator[None]:
    execute("savepoint inner_step")
    try:
        yield
    except BaseException:
        execute("rollback to savepoint inner_step")
        raise
    execute("release savepoint inner_step")


async def _awaited(make: Callable[[], Any]) -> Any:
    return await make()


POSTGRESQL, SQLITE, MARIADB, POOLER = "postgresql", "sqlite", "mariadb", "pooler"
KINDS: dict[str, tuple[type[Kind], str]] = {
    "sqlite3": (Sqlite3, SQLITE),
    "psycopg": (Psycopg, POSTGRESQL),
    "psycopg-transaction": (PsycopgTransaction, POSTGRESQL),
    "psycopg-async": (AsyncPsycopg, POSTGRESQL),
    "pymysql": (PyMysql, MARIADB),
    "asyncpg": (Asyncpg, POSTGRESQL),
    "asyncpg-pool": (AsyncpgPool, POSTGRESQL),
    "core-sqlite": (Core, SQLITE),
    "core-psycopg": (Core, POSTGRESQL),
    "core-pymysql": (Core, MARIADB),
    "orm-sqlite": (Orm, SQLITE),
    "orm-psycopg": (Orm, POSTGRESQL),
    "orm-pymysql": (Orm, MARIADB),
    "core-aiosqlite": (AsyncCore, SQLITE),
    "core-asyncpg": (AsyncCore, POSTGRESQL),
    "core-psycopg-async": (AsyncCorePsycopg, POSTGRESQL),
    "orm-aiosqlite": (AsyncOrm, SQLITE),
    "orm-asyncpg": (AsyncOrm, POSTGRESQL),
    "django-sqlite": (Django, SQLITE),
    "django-postgresql": (Django, POSTGRESQL),
    "django-mariadb": (Django, MARIADB),
    "psycopg-behind-pooler": (Psycopg, POOLER),
    "asyncpg-behind-pooler": (AsyncpgBehindPooler, POOLER),
    "core-behind-pooler": (Core, POOLER),
    "django-behind-pooler": (Django, POOLER),
}
"""The kinds by name, with the database that each needs."""
