"""Django databases, by alias (`"default"`) or connection."""

from typing import Any

from django.db import connections

from fieldpost.core.errors import InvalidInput
from fieldpost.outbox.connections import SqlDialect, autocommit, closed, failed, unsupported
from fieldpost.outbox.tables import OutboxDatabase


class _Django:
    def resolve(self, connection: Any) -> Any:
        alias = connection if isinstance(connection, str) else connection.alias
        if alias not in connections:
            known = ", ".join(connections)
            raise InvalidInput(
                "outbox.connection", f"Django has no database {alias!r}", field="connection", hint=f"known: {known}"
            )
        # A proxy such as django.db.connection leads to the connection of this thread.
        wrapper = connections[alias]
        if wrapper.closed_in_transaction or (wrapper.in_atomic_block and wrapper.connection is None):
            raise closed()
        return wrapper

    def check(self, connection: Any) -> None:
        if connection.needs_rollback:
            raise failed()
        if not connection.in_atomic_block and connection.get_autocommit():
            raise autocommit("use `with transaction.atomic(using=…)`")

    def dialect(self, connection: Any) -> SqlDialect:
        match connection.vendor:
            case "postgresql":
                return _POSTGRESQL
            case "sqlite":
                return _SQLITE
            case "mysql" if connection.mysql_is_mariadb:
                return _MARIADB
            case other:
                raise unsupported(other)

    def execute(self, connection: Any, statement: str, values: tuple[Any, ...] = ()) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)

    def query(self, connection: Any, statement: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


_POSTGRESQL = SqlDialect(OutboxDatabase.POSTGRESQL, "%s")
_SQLITE = SqlDialect(OutboxDatabase.SQLITE, "%s")
_MARIADB = SqlDialect(OutboxDatabase.MARIADB, "%s")
DJANGO = _Django()
