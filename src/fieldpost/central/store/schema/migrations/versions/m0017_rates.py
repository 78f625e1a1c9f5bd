"""Rates of lists and channels, the queues behind them, and pauses of targets."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0017"
down_revision = "m0016"


def upgrade() -> None:
    run_beside(__file__)
