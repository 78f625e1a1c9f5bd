"""Timed rows apart from claimable ones; catalogue versions; topics, subscriptions and events. Adds only."""

from alembic import op

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0002"
down_revision = "m0001"


def upgrade() -> None:
    run_beside(__file__)
    if op.get_bind().dialect.name == "postgresql":
        # Claims walk ranges of keys, which must not depend on the locale. Only the indexes are built again.
        op.execute('ALTER TABLE notifications ALTER COLUMN delivery_key TYPE TEXT COLLATE "C"')
