"""Ended notifications of an application's events by time, and the reports of its relays."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0006"
down_revision = "m0005"


def upgrade() -> None:
    run_beside(__file__)
