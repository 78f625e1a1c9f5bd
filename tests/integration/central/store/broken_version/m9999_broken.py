"""A made-up next release whose migration fails after its first change."""

import sqlalchemy as sa
from alembic import op

from fieldpost.central.store.schema.migrate import VERSIONS

revision = "m9999"
down_revision = max(VERSIONS.glob("m*.py")).stem.partition("_")[0]


def upgrade() -> None:
    op.add_column("notifications", sa.Column("urgency", sa.Text()))
    op.execute("update notifications set no_such_column = 1")
