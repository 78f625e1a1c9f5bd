"""DB-API connections: sqlite3 (and pysqlite3), psycopg, PyMySQL.

The libraries are never imported here; their connections are inspected.
"""

from typing import Any

from fieldpost.outbox.connections import SqlDialect, autocommit, closed, failed
from fieldpost.outbox.tables import OutboxDatabase

IN_TRANSACTION, FAILED = 2, 3
"""PQTRANS_INTRANS and PQTRANS_INERROR of libpq."""
_MYSQL_IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS of the client protocol."""


class _Sqlite3:
    """`in_transaction` of a closed connection raises ProgrammingError, a class of the module in use."""

    def resolve(self, connection: Any) -> Any:
        try:
            connection.in_transaction  # noqa: B018
        except connection.ProgrammingError:
            raise closed() from None
        return connection

    def check(self, connection: Any) -> None:
        if connection.in_transaction:
            return
        # A default connection opens a transaction before the INSERT; one with autocommit=False always has one.
        if is_autocommit(connection):
            raise autocommit("execute BEGIN first, or open the connection without isolation_level=None")

    def dialect(self, connection: Any) -> SqlDialect:
        return _SQLITE_DIALECT

    def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        connection.execute(statement, values)

    def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        cursor = connection.cursor()
        cursor.row_factory = None
        return list(cursor.execute(statement))


class _Psycopg:
    def resolve(self, connection: Any) -> Any:
        if connection.closed:
            raise closed()
        return connection

    def check(self, connection: Any) -> None:
        check_psycopg(connection)

    def dialect(self, connection: Any) -> SqlDialect:
        return PSYCOPG_DIALECT

    def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        connection.execute(statement, values or None)

    def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        from psycopg.rows import tuple_row

        with connection.cursor(row_factory=tuple_row) as cursor:
            return list(cursor.execute(statement).fetchall())


class _PyMysql:
    def resolve(self, connection: Any) -> Any:
        if not connection.open:
            raise closed()
        return connection

    def check(self, connection: Any) -> None:
        if connection.get_autocommit() and not connection.server_status & _MYSQL_IN_TRANSACTION:
            raise autocommit("call connection.begin() first, or connect with autocommit=False")

    def dialect(self, connection: Any) -> SqlDialect:
        return _MARIADB_DIALECT

    def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        from pymysql.cursors import Cursor

        with connection.cursor(Cursor) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def check_psycopg(connection: Any) -> None:
    """The rule for sync and async connections of psycopg."""
    status = connection.info.transaction_status
    if status == FAILED:
        raise failed()
    # In a pipeline the status lags behind; the connection itself counts its `transaction()` blocks.
    if connection.autocommit and status != IN_TRANSACTION and not connection._num_transactions:
        raise autocommit("use `with connection.transaction()`, or connect with autocommit=False")


def is_autocommit(connection: Any) -> bool:
    """Whether a DB-API connection of any driver commits each statement outside a transaction."""
    setting = getattr(connection, "autocommit", None)
    if isinstance(setting, bool):  # psycopg, psycopg2, SQLAlchemy's asyncpg; sqlite3 from Python 3.12 on, if it was set
        return setting
    if (ask := getattr(connection, "get_autocommit", None)) is not None:  # PyMySQL
        return bool(ask())
    return getattr(connection, "isolation_level", "") is None  # sqlite3


def is_transaction_open(connection: Any) -> bool:
    """Whether a connection of any driver below SQLAlchemy has an open transaction."""
    if (is_open := getattr(connection, "in_transaction", None)) is not None:  # sqlite3, aiosqlite
        return bool(is_open)
    if (ask := getattr(connection, "is_in_transaction", None)) is not None:  # asyncpg
        return bool(ask())
    if (info := getattr(connection, "info", None)) is not None:  # psycopg, psycopg2
        return bool(info.transaction_status in (IN_TRANSACTION, FAILED))
    return bool(getattr(connection, "server_status", 0) & _MYSQL_IN_TRANSACTION)  # PyMySQL


_SQLITE_DIALECT = SqlDialect(OutboxDatabase.SQLITE, "?")
PSYCOPG_DIALECT = SqlDialect(OutboxDatabase.POSTGRESQL, "%s")
_MARIADB_DIALECT = SqlDialect(OutboxDatabase.MARIADB, "%s")
SQLITE3, PSYCOPG, PYMYSQL = _Sqlite3(), _Psycopg(), _PyMysql()
