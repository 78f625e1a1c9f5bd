"""Search: what notifications are found by, filled behind the arrivals."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Id, Moment

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index(
        "ix_notifications_undelivered",
        "notifications",
        ["status", "created_at", "notification_id"],
        unique=False,
        postgresql_where=sa.text("status <> 'delivered'"),
        sqlite_where=sa.text("status <> 'delivered'"),
    )
    op.create_table(
        "search_terms",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("newest", sa.LargeBinary(), nullable=False),
        sa.Column("sweep", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("places", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", "term", "newest", "sweep", name=op.f("pk_search_terms")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "search_backlog",
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("notification_id", name=op.f("pk_search_backlog")),
    )
    op.create_index("ix_search_backlog_created_at", "search_backlog", ["created_at"], unique=False)
    # What has arrived so far is found too, as soon as the nodes have worked this off. PostgreSQL knows no least uuid.
    first = "min(notification_id)"
    if op.get_bind().dialect.name == "postgresql":
        first = "cast(min(cast(notification_id as text)) as uuid)"
    op.execute(
        "insert into search_backlog (notification_id, created_at, count)"
        f" select {first}, created_at, count(*) from notifications group by created_at"
    )
