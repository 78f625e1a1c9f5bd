"""Receipts of accepted targets, and how long a channel waits for them."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0019"
down_revision = "m0018"


def upgrade() -> None:
    run_beside(__file__)
