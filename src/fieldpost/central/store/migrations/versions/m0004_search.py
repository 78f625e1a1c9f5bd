"""Search: what notifications are found by, filled behind the arrivals; and acts on many at once."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.types import Id, Json, Moment

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
    op.create_table(
        "bulk_acts",
        sa.Column("act_id", Id(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("filter", Json, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_cut", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("found", sa.Integer(), server_default="0", nullable=False),
        sa.Column("done", sa.Integer(), server_default="0", nullable=False),
        sa.Column("changed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("not_parked", sa.Integer(), server_default="0", nullable=False),
        sa.Column("gone", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("finished_at", Moment(), nullable=True),
        sa.CheckConstraint("act in ('retry', 'discard')", name=op.f("ck_bulk_acts_act")),
        sa.CheckConstraint(
            "state in ('gathering', 'ready', 'running', 'done', 'stopped')", name=op.f("ck_bulk_acts_state")
        ),
        sa.CheckConstraint(
            "(state in ('done', 'stopped')) = (finished_at is not null)", name=op.f("ck_bulk_acts_finished")
        ),
        sa.CheckConstraint("length(reason) > 0", name=op.f("ck_bulk_acts_reason")),
        sa.PrimaryKeyConstraint("act_id", name=op.f("pk_bulk_acts")),
    )
    op.create_index("ix_bulk_acts_created_at", "bulk_acts", ["created_at"], unique=False)
    op.create_table(
        "bulk_act_rows",
        sa.Column("act_id", Id(), nullable=False),
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.CheckConstraint("result in ('done', 'changed', 'not_parked', 'gone')", name=op.f("ck_bulk_act_rows_result")),
        sa.ForeignKeyConstraint(
            ["act_id"], ["bulk_acts.act_id"], name=op.f("fk_bulk_act_rows_act_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("act_id", "notification_id", name=op.f("pk_bulk_act_rows")),
    )
    op.create_index(
        "ix_bulk_act_rows_open",
        "bulk_act_rows",
        ["act_id", "notification_id"],
        unique=False,
        postgresql_where=sa.text("result is null"),
        sqlite_where=sa.text("result is null"),
    )
