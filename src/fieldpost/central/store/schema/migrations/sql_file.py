"""Runs the SQL file beside a migration, with the column types of the database at hand."""

import re
from pathlib import Path

from alembic import op

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


def run_beside(migration: str) -> None:
    """Run the statements of the `.sql` file beside this migration (its `__file__`)."""
    column = 0 if op.get_bind().dialect.name == "postgresql" else 1
    sql = Path(migration).with_suffix(".sql").read_text(encoding="utf-8")
    for statement in re.sub(r"\{(\w+)\}", lambda mark: _MARKS[mark[1]][column], sql).split(";\n"):
        if statement.strip():
            op.execute(statement)
