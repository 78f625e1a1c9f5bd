"""The list that the last probe of a breaker went to, and held rows by list."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0005"
down_revision = "m0004"


def upgrade() -> None:
    run_beside(__file__)
