"""SQLAlchemy 2: connections and sessions, sync and async, with any DB-API below them.

The statement goes to the DB-API as it is (`exec_driver_sql`): it is neither compiled nor cached by SQLAlchemy, and a
session flushes nothing for it.

Whether a transaction is open is known only after SQLAlchemy has begun one, because it begins at the first statement and
some applications emit BEGIN in an event. So `check` begins first, and undoes that if it rejects the connection.
"""

from typing import Any

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import InvalidRequestError, PendingRollbackError

from fieldpost.core.errors import Conflict
from fieldpost.outbox.connections import SqlDialect, autocommit, closed, ended, failed, unsupported
from fieldpost.outbox.drivers.dbapi import is_autocommit, is_transaction_open
from fieldpost.outbox.tables import OutboxDatabase

_DATABASES = {
    "postgresql": OutboxDatabase.POSTGRESQL,
    "sqlite": OutboxDatabase.SQLITE,
    "mariadb": OutboxDatabase.MARIADB,
    "mysql": OutboxDatabase.MARIADB,
}
_STYLES = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": "$"}
_HINT = "use a connection or engine without isolation_level='AUTOCOMMIT' for transactions"


class _Core:
    def resolve(self, connection: Connection) -> Connection:
        if connection.closed:
            raise closed()
        return connection

    def check(self, connection: Connection) -> None:
        if (transaction := connection.get_transaction()) is not None:
            nested = connection.get_nested_transaction()
            if not transaction.is_active or connection.invalidated or (nested is not None and not nested.is_active):
                raise failed()
            _refuse_autocommit(connection)
            return
        try:
            transaction = connection.begin()
        except InvalidRequestError:  # rolled back or committed within `with engine.begin()`
            raise ended() from None
        try:
            _refuse_autocommit(connection)
        except BaseException:
            transaction.rollback()
            raise

    def dialect(self, connection: Connection) -> SqlDialect:
        dialect = connection.dialect
        database, style = database_of(dialect), _STYLES.get(dialect.paramstyle)
        if style is None or getattr(dialect, "is_mariadb", True) is False:
            raise unsupported(dialect.name if style else f"{dialect.name} by {dialect.driver}")
        return SqlDialect(database, style)

    def execute(self, connection: Connection, statement: str, values: tuple[Any, ...] = ()) -> None:
        connection.exec_driver_sql(statement, values or None)

    def query(self, connection: Connection, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]


class _Orm(_Core):
    def resolve(self, session: Any) -> Connection:
        try:
            connection: Connection = session.connection()
        except PendingRollbackError:
            raise failed() from None
        except InvalidRequestError as error:
            raise _unusable(error) from None
        return super().resolve(connection)


class _AsyncCore:
    async def resolve(self, connection: Any) -> Any:
        if connection.closed or connection.sync_connection is None:
            raise closed()
        return connection

    async def check(self, connection: Any) -> None:
        if connection.in_transaction():
            CORE.check(connection.sync_connection)
        else:
            await connection.run_sync(CORE.check)  # an event may execute BEGIN

    def dialect(self, connection: Any) -> SqlDialect:
        return CORE.dialect(connection.sync_connection)

    async def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        await connection.exec_driver_sql(statement, values or None)

    async def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.exec_driver_sql(statement)]


class _AsyncOrm(_AsyncCore):
    async def resolve(self, session: Any) -> Any:
        try:
            connection = await session.connection()
        except PendingRollbackError:
            raise failed() from None
        except InvalidRequestError as error:
            raise _unusable(error) from None
        return await super().resolve(connection)


def database_of(dialect: Dialect) -> OutboxDatabase:
    """The kind of database; raises InvalidInput for one that cannot hold an outbox."""
    if (database := _DATABASES.get(dialect.name)) is None:
        raise unsupported(dialect.name)
    return database


def _refuse_autocommit(connection: Connection) -> None:
    adapted = connection.connection.dbapi_connection
    if is_autocommit(adapted) and not is_transaction_open(getattr(adapted, "driver_connection", adapted)):
        raise autocommit(_HINT)


def _unusable(error: InvalidRequestError) -> Conflict:
    """A session that gives no connection: closed for good, without `begin()`, or without a default database."""
    return Conflict(
        "outbox.session",
        f"the session gives no connection: {error}",
        field="connection",
        hint="call session.begin() first, or pass session.connection(…) of the right database",
    )


CORE, ORM, ASYNC_CORE, ASYNC_ORM = _Core(), _Orm(), _AsyncCore(), _AsyncOrm()
