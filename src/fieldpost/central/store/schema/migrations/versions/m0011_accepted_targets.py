"""Targets that a provider has accepted, and texts that were truncated."""

from alembic import op

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0011"
down_revision = "m0010"

_POSTGRESQL = """
ALTER TABLE targets ADD COLUMN truncated_to INTEGER, ADD COLUMN provider_id TEXT,
    DROP CONSTRAINT ck_targets_status,
    ADD CONSTRAINT ck_targets_status CHECK (status in ('due', 'accepted', 'delivered', 'failed'))
"""


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_POSTGRESQL)
    else:
        # SQLite cannot change a constraint: the table is copied.
        run_beside(__file__)
