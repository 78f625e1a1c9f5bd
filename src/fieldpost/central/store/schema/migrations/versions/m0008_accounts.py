"""Accounts: people without a password yet or any more, named tokens, one-time links, delays after wrong logins."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Moment

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    _operators()
    for name in ("name", "created_by", "address", "agent"):
        op.add_column("tokens", sa.Column(name, sa.Text()))
    op.create_table(
        "login_links",
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("operator_name", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("expires_at", Moment(), nullable=False),
        sa.Column("ended_at", Moment()),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_login_links")),
        sa.ForeignKeyConstraint(
            ["operator_name"], ["operators.name"], name=op.f("fk_login_links_operator_name"), ondelete="CASCADE"
        ),
    )
    op.create_index("ix_login_links_operator_name", "login_links", ["operator_name"], unique=False)
    op.create_table(
        "login_delays",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failed_at", Moment(), nullable=False),
        sa.Column("free_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_login_delays")),
        sa.CheckConstraint("failures >= 0", name=op.f("ck_login_delays_failures")),
    )


def _operators() -> None:
    # SQLite cannot drop a NOT NULL, so Alembic makes the table anew there, from what it is told it was.
    before = sa.Table(
        "operators",
        sa.MetaData(),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.CheckConstraint("role in ('viewer', 'operator', 'admin')", name="ck_operators_role"),
        sa.PrimaryKeyConstraint("name", name="pk_operators"),
    )
    with op.batch_alter_table("operators", copy_from=before) as batch:
        batch.alter_column("password_hash", existing_type=sa.Text(), nullable=True)
        batch.add_column(sa.Column("created_by", sa.Text()))
        batch.add_column(sa.Column("disabled_at", Moment()))
        batch.add_column(sa.Column("last_login_at", Moment()))
        batch.add_column(sa.Column("subject", sa.Text()))
        batch.add_column(sa.Column("version", sa.BigInteger(), server_default="1", nullable=False))
    op.create_index("ix_operators_subject", "operators", ["subject"], unique=True)
