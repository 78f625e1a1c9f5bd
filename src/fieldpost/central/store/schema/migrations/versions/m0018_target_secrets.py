"""Secrets of the targets of lists."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0018"
down_revision = "m0017"


def upgrade() -> None:
    run_beside(__file__)
