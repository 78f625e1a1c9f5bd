"""Secrets of channels apart from their settings, the ids of the keys they are kept under, and whom a list hears."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.engine.column_types import Json, Moment

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("lists", sa.Column("allowed_sites", Json, nullable=True))
    op.add_column("channels", sa.Column("secrets", Json, server_default="{}", nullable=False))
    op.create_table(
        "secret_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("added_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_secret_keys")),
    )
