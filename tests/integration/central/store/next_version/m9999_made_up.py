"""A made-up next release: a column with a backfill, a table rebuilt on SQLite, an index."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.schema.migrate import VERSIONS

revision = "m9999"
down_revision = max(VERSIONS.glob("m*.py")).stem.partition("_")[0]


def upgrade() -> None:
    op.add_column("notifications", sa.Column("urgency", sa.Text()))
    op.execute("update notifications set urgency = case when status = 'parked' then 'warning' else 'info' end")
    op.create_index("ix_notifications_urgency", "notifications", ["urgency"])
    # SQLite cannot drop a NOT NULL: Alembic copies the table there.
    with op.batch_alter_table("channels") as batch:
        batch.alter_column("settings", existing_type=sa.JSON(), nullable=True)
