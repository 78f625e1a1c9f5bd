"""New addresses of the targets that their provider has moved."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0021"
down_revision = "m0020"


def upgrade() -> None:
    run_beside(__file__)
