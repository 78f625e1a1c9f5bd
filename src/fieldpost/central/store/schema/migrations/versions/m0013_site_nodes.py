"""The two nodes of a site: their tokens, health and switches of leadership."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0013"
down_revision = "m0012"


def upgrade() -> None:
    run_beside(__file__)
