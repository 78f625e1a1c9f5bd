"""The tables of the outbox in a migration of Alembic.

    from alembic import op
    from fieldpost.outbox.integrations.alembic import create_outbox_tables

    def upgrade() -> None:
        create_outbox_tables(op)

    def downgrade() -> None:
        pass  # the tables may hold events that are not delivered yet

In `env.py`, `context.configure(…, include_name=leave_out_outbox_tables)` keeps `--autogenerate` from dropping them.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from fieldpost.outbox.ddl import ddl
from fieldpost.outbox.drivers.sqlalchemy import database_of
from fieldpost.outbox.outbox import Outbox
from fieldpost.outbox.tables import TABLES

_NAMES = frozenset(table.name for table in TABLES)


def create_outbox_tables(op: Any) -> None:
    """Create the tables, or add missing columns to existing ones. `op` is `alembic.op`.

    With `--sql` there is no database to check: the script creates all tables that do not exist.
    """
    if op.get_context().as_sql:
        for statement in ddl(database_of(op.get_context().dialect)):
            op.execute(text(statement.replace(":", "\\:")))
    else:
        Outbox.create_tables(op.get_bind())


def leave_out_outbox_tables(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """For `include_name` in `env.py`: false for the tables of the outbox, which are not in your metadata."""
    return type_ != "table" or name not in _NAMES
