"""The type in the indexes that KPIs are counted from, so that lists and webhooks are counted separately."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0007"
down_revision = "m0006"


def upgrade() -> None:
    run_beside(__file__)
