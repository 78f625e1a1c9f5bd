"""The schema of the first release, from m0001_first.sql: frozen, while `schema/` goes on to change."""

import re
from pathlib import Path

from alembic import op

revision = "m0001"
down_revision = None

# What a mark in the text means on PostgreSQL and on SQLite.
_MARKS = {
    "id": ("UUID", "TEXT"),
    "moment": ("TIMESTAMP WITH TIME ZONE", "BIGINT"),
    "json": ("JSONB", "JSON"),
    "bytes": ("BYTEA", "BLOB"),
    "fillfactor_60": ("WITH (fillfactor = 60)", ""),
    "fillfactor_80": ("WITH (fillfactor = 80)", ""),
    "without_rowid": ("", "WITHOUT ROWID"),
}


def upgrade() -> None:
    column = 0 if op.get_bind().dialect.name == "postgresql" else 1
    sql = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in re.sub(r"\{(\w+)\}", lambda mark: _MARKS[mark[1]][column], sql).split(";\n"):
        op.execute(statement)
