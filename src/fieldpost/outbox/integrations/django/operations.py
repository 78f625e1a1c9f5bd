"""The operation of the migration; use it in a migration of your own to decide when the tables are created."""

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from fieldpost.outbox.connections import driver_of
from fieldpost.outbox.ddl import changes
from fieldpost.outbox.schema_queries import COLUMNS_QUERY, columns_by_table


class CreateOutboxTables(Operation):  # type: ignore[misc]
    """Create the tables of the outbox, or add missing columns to existing ones.

    Reversing it keeps the tables: they may hold events that are not delivered yet.
    """

    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The tables belong to no model."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if not router.allow_migrate(connection.alias, app_label):
            return
        driver = driver_of(connection)
        database = driver.dialect(connection).database
        existing = columns_by_table(driver.query(connection, COLUMNS_QUERY[database]))
        for statement in changes(database, existing):
            schema_editor.execute(statement, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Keep the tables."""

    def describe(self) -> str:
        return "Create the tables of the event outbox"
