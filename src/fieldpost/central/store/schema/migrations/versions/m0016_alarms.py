"""Severity, incident and end of an alarm, and the severity that a list gives its notifications."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0016"
down_revision = "m0015"


def upgrade() -> None:
    run_beside(__file__)
