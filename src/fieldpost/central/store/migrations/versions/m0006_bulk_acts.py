"""Bulk acts: what an operator does to many notifications at once, resumable."""

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    pass
