"""Bulk actions: what an operator does to many notifications at once, resumable. Sites: enrolment and revocation."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Id, Json, Moment

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "bulk_actions",
        sa.Column("action_id", Id(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("wanted", Json),
        sa.Column("as_of", Moment(), nullable=False),
        sa.Column("in_stages", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stage", sa.Integer(), server_default="0", nullable=False),
        sa.Column("total", sa.Integer(), server_default="0", nullable=False),
        sa.Column("done", sa.Integer(), server_default="0", nullable=False),
        sa.Column("conflicts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("gone", sa.Integer(), server_default="0", nullable=False),
        sa.Column("note", sa.Text()),
        sa.Column("ended_at", Moment()),
        sa.Column("due_at", Moment()),
        sa.Column("gathered_to_at", Moment()),
        sa.Column("gathered_to_id", Id()),
        sa.PrimaryKeyConstraint("action_id", name=op.f("pk_bulk_actions")),
        sa.CheckConstraint("verb in ('retry', 'discard')", name=op.f("ck_bulk_actions_verb")),
        sa.CheckConstraint(
            "status in ('gathering', 'running', 'finished', 'cancelled', 'halted')", name=op.f("ck_bulk_actions_status")
        ),
        sa.CheckConstraint("length(reason) > 0", name=op.f("ck_bulk_actions_reason")),
        sa.CheckConstraint(
            "done >= 0 and conflicts >= 0 and gone >= 0 and done + conflicts + gone <= total",
            name=op.f("ck_bulk_actions_counts"),
        ),
        sa.CheckConstraint(
            "(status in ('gathering', 'running')) = (ended_at is null)", name=op.f("ck_bulk_actions_ended")
        ),
        sa.CheckConstraint("(ended_at is null) = (due_at is not null)", name=op.f("ck_bulk_actions_due")),
    )
    op.create_index(
        "ix_bulk_actions_due",
        "bulk_actions",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("ended_at is null"),
        sqlite_where=sa.text("ended_at is null"),
    )
    op.create_index("ix_bulk_actions_created_at", "bulk_actions", ["created_at"], unique=False)
    op.create_table(
        "bulk_action_rows",
        sa.Column("action_id", Id(), nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("notification_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger()),
        sa.Column("error_key", sa.Text()),
        sa.Column("outcome", sa.Text()),
        sa.Column("current_status", sa.Text()),
        sa.Column("settled_at", Moment()),
        sa.PrimaryKeyConstraint("action_id", "place", name=op.f("pk_bulk_action_rows")),
        sa.ForeignKeyConstraint(
            ["action_id"], ["bulk_actions.action_id"], name=op.f("fk_bulk_action_rows_action_id"), ondelete="CASCADE"
        ),
        sa.CheckConstraint("outcome in ('done', 'conflict', 'gone')", name=op.f("ck_bulk_action_rows_outcome")),
        sa.CheckConstraint("(outcome is null) = (settled_at is null)", name=op.f("ck_bulk_action_rows_settled")),
        sqlite_with_rowid=False,
    )
    op.add_column("sites", sa.Column("revoked_at", Moment()))
    op.create_table(
        "enrolments",
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("site_name", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.Column("ended_at", Moment()),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_enrolments")),
        sa.ForeignKeyConstraint(["site_name"], ["sites.site_name"], name=op.f("fk_enrolments_site_name")),
    )
    op.create_index("ix_enrolments_site_name", "enrolments", ["site_name"], unique=False)
