"""The schema of the first release, from m0001_first.sql: frozen, while `schema/` goes on to change."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0001"
down_revision = None


def upgrade() -> None:
    run_beside(__file__)
