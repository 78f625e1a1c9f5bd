"""Kanalen and abonnementen of the ZGW API."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0015"
down_revision = "m0014"


def upgrade() -> None:
    run_beside(__file__)
