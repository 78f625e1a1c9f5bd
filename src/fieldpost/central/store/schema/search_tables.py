"""The search index of notifications (see `search/terms.py`)."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, Table, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.schema.base import metadata

search_terms = Table(
    "search_terms",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),  # days since 1970
    Column("term", Text, primary_key=True),
    Column("newest", LargeBinary, primary_key=True),
    Column("sweep", BigInteger, primary_key=True, autoincrement=False),
    Column("places", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

search_backlog = Table(
    "search_backlog",
    metadata,
    Column("notification_id", Id, primary_key=True),  # one of the notifications that arrived together
    Column("created_at", Moment, nullable=False),
    Column("count", Integer, nullable=False),
    Index("ix_search_backlog_created_at", "created_at"),
)
