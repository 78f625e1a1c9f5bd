"""A made-up next release whose migration fails after its first change."""

import sqlalchemy as sa
from alembic import op

revision = "m0006"
down_revision = "m0005"


def upgrade() -> None:
    op.add_column("notifications", sa.Column("severity", sa.Text()))
    op.execute("update notifications set no_such_column = 1")
