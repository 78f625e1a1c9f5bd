"""Severity, incident and is_cleared of templates."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0020"
down_revision = "m0019"


def upgrade() -> None:
    run_beside(__file__)
