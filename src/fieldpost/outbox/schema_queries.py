"""Queries for the present state of the outbox's tables, on any connection of the application."""

from collections.abc import Iterable

from fieldpost.outbox.tables import OUTBOX, TABLES, OutboxDatabase

TABLE_NAMES = ", ".join(f"'{table.name}'" for table in TABLES)
TABLE_OIDS = ", ".join(f"to_regclass('{table.name}')" for table in TABLES)

COLUMNS_QUERY = {
    OutboxDatabase.POSTGRESQL: (
        "select c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod)"
        " from pg_class c join pg_attribute a on a.attrelid = c.oid"
        f" where c.oid in ({TABLE_OIDS}) and a.attnum > 0 and not a.attisdropped"
    ),
    OutboxDatabase.SQLITE: (
        "select t.name, c.name, lower(c.type) from sqlite_master t, pragma_table_info(t.name) c"
        f" where t.type = 'table' and t.name in ({TABLE_NAMES})"
    ),
    OutboxDatabase.MARIADB: (
        "select table_name, column_name, column_type from information_schema.columns"
        f" where table_schema = database() and table_name in ({TABLE_NAMES})"
    ),
}
"""Table, column and type of every column of the outbox's tables."""


def columns_by_table(rows: Iterable[tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """The type by column by table, from the rows of COLUMNS_QUERY."""
    found: dict[str, dict[str, str]] = {}
    for table, column, sql_type in rows:
        found.setdefault(table, {})[column] = sql_type
    return found


_EVENT_COLUMNS = (
    *("event_outbox_id", "event_type", "payload", "status", "action", "resource", "attributes"),
    *("correlation_id", "order_key"),
)
_AS_TEXT = ("event_outbox_id", "payload", "attributes")


def events_query(database: OutboxDatabase) -> str:
    """The events in the outbox, in the order in which they were added."""
    is_postgresql = database is OutboxDatabase.POSTGRESQL
    columns = [f"cast({name} as text)" if is_postgresql and name in _AS_TEXT else name for name in _EVENT_COLUMNS]
    return f"select {', '.join(columns)} from {OUTBOX} order by created_at, event_outbox_id"
