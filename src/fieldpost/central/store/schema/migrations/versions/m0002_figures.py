"""What KPIs, their history and purge need: indexes on live, parked and terminal rows, and samples."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Json, Moment

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "samples",
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("taken_at", Moment(), nullable=False),
        sa.Column("figures", Json, nullable=False),
        sa.PrimaryKeyConstraint("site", "taken_at", name=op.f("pk_samples")),
    )
    op.create_index("ix_samples_taken_at", "samples", ["taken_at"], unique=False)
    op.create_index("ix_tombstones_purged_at", "tombstones", ["purged_at"], unique=False)
    op.create_index("ix_audit_occurred_at", "audit", ["occurred_at"], unique=False)
    op.create_index(
        "ix_notifications_live",
        "notifications",
        ["source_site_id", "created_at", "status"],
        unique=False,
        postgresql_where=sa.text("status in ('pending', 'retrying')"),
        sqlite_where=sa.text("status in ('pending', 'retrying')"),
    )
    op.create_index(
        "ix_notifications_parked",
        "notifications",
        ["source_site_id"],
        unique=False,
        postgresql_where=sa.text("status = 'parked'"),
        sqlite_where=sa.text("status = 'parked'"),
    )
    op.create_index(
        "ix_notifications_terminal",
        "notifications",
        ["terminal_at", "status", "source_site_id"],
        unique=False,
        postgresql_where=sa.text("terminal_at is not null"),
        sqlite_where=sa.text("terminal_at is not null"),
    )
