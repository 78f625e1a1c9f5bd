"""Values that an installation chooses at its first start and keeps."""

from fieldpost.central.store.schema.migrations.sql_file import run_beside

revision = "m0004"
down_revision = "m0003"


def upgrade() -> None:
    run_beside(__file__)
