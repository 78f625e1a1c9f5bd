"""The epoch leases of sites with two nodes."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0010"
down_revision = "m0009"


def upgrade() -> None:
    run_beside(__file__)
