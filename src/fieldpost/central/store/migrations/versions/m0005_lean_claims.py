"""Indexes that a claim does not touch."""

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    pass
