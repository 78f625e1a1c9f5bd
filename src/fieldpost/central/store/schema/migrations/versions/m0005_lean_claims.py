"""Indexes that a claim does not touch, each the only one that fits its statements; room for rows that change once."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for name in ("claim", "suspect", "undelivered", "live", "parked"):
        op.drop_index(f"ix_notifications_{name}", "notifications")
    _add("claim", ["status", "delivery_key", "due_at"], "due_at is not null and held_by is null")
    _add("suspect", ["due_at"], "due_at is not null and orphan_count > 0")
    _add("held_since", ["cycle_started_at"], "held_by is not null")
    # KPIs find all they ask of live and parked rows in it, so that these need no indexes of their own.
    _add("undelivered", ["status", "created_at", "notification_id", "source_site_id"], "status <> 'delivered'")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("alter table targets set (fillfactor = 60)")
        op.execute("alter table attempts set (fillfactor = 60)")


def _add(name: str, columns: list[str], where: str) -> None:
    op.create_index(
        f"ix_notifications_{name}",
        "notifications",
        columns,
        unique=False,
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )
