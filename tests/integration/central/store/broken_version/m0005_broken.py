"""A made-up next release whose migration fails after its first change."""

import sqlalchemy as sa
from alembic import op

revision = "m0005"
down_revision = "m0004"


def upgrade() -> None:
    op.add_column("notifications", sa.Column("severity", sa.Text()))
    op.execute("update notifications set no_such_column = 1")
