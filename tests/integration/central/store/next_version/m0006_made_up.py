"""A made-up next release: a column with a backfill, a table rebuilt on SQLite, an index."""

import sqlalchemy as sa
from alembic import op

revision = "m0006"
down_revision = "m0005"


def upgrade() -> None:
    op.add_column("notifications", sa.Column("severity", sa.Text()))
    op.execute("update notifications set severity = case when status = 'parked' then 'warning' else 'info' end")
    op.create_index("ix_notifications_severity", "notifications", ["severity"])
    # SQLite cannot drop a NOT NULL: Alembic copies the table there.
    with op.batch_alter_table("channels") as batch:
        batch.alter_column("settings", existing_type=sa.JSON(), nullable=True)
