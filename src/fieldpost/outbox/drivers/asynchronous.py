"""Asynchronous connections: asyncpg, also from its pool, and psycopg."""

from typing import Any

from fieldpost.outbox.connections import SqlDialect, autocommit, closed
from fieldpost.outbox.drivers.dbapi import PSYCOPG_DIALECT, check_psycopg
from fieldpost.outbox.tables import OutboxDatabase


class _Asyncpg:
    """A failed transaction cannot be seen here; the server rejects the INSERT (25P02)."""

    async def resolve(self, connection: Any) -> Any:
        from asyncpg import InterfaceError

        try:
            is_closed = connection.is_closed()
        except InterfaceError:  # returned to its pool
            raise closed() from None
        if is_closed:
            raise closed()
        return connection

    async def check(self, connection: Any) -> None:
        if not connection.is_in_transaction():
            raise autocommit("use `async with connection.transaction()`")

    def dialect(self, connection: Any) -> SqlDialect:
        return _ASYNCPG_DIALECT

    async def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        await connection.execute(statement, *values)

    async def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(statement)]


class _AsyncPsycopg:
    async def resolve(self, connection: Any) -> Any:
        if connection.closed:
            raise closed()
        return connection

    async def check(self, connection: Any) -> None:
        check_psycopg(connection)

    def dialect(self, connection: Any) -> SqlDialect:
        return PSYCOPG_DIALECT

    async def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        await connection.execute(statement, values or None)

    async def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        from psycopg.rows import tuple_row

        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall())


_ASYNCPG_DIALECT = SqlDialect(OutboxDatabase.POSTGRESQL, "$")
ASYNCPG, ASYNC_PSYCOPG = _Asyncpg(), _AsyncPsycopg()
