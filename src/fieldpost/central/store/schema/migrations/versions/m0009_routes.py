"""Routes from events to lists, and templates."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0009"
down_revision = "m0008"


def upgrade() -> None:
    run_beside(__file__)
