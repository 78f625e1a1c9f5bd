"""Subscriptions with their state, breakers that remember an outage, exchanges of attempts, rates."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0003"
down_revision = "m0002"


def upgrade() -> None:
    run_beside(__file__)
