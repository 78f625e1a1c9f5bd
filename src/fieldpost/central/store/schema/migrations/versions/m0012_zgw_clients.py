"""Clients of the ZGW API."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0012"
down_revision = "m0011"


def upgrade() -> None:
    run_beside(__file__)
