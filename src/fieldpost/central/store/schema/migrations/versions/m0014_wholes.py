"""Submissions to lists of lists, and the notifications that are their parts."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0014"
down_revision = "m0013"


def upgrade() -> None:
    run_beside(__file__)
