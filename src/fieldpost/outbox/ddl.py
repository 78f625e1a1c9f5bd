"""The DDL of the outbox's tables for PostgreSQL, SQLite and MariaDB, from the declarations in `tables.py`."""

from collections.abc import Collection, Iterator, Mapping

from fieldpost.core.errors import Conflict
from fieldpost.outbox.tables import OUTBOX, TABLES, ColumnDefault, ColumnType, OutboxDatabase, OutboxTable, TableColumn

_TYPES = {
    OutboxDatabase.POSTGRESQL: {
        ColumnType.ID: "uuid",
        ColumnType.STRING: "varchar({})",
        ColumnType.TEXT: "text",
        ColumnType.JSON: "json",  # not jsonb, which changes the text
        ColumnType.INTEGER: "integer",
        ColumnType.TOKEN: "bigint",
        ColumnType.TIME: "timestamptz",
    },
    OutboxDatabase.SQLITE: {
        ColumnType.ID: "text",
        ColumnType.STRING: "varchar({})",
        ColumnType.TEXT: "text",
        ColumnType.JSON: "text",
        ColumnType.INTEGER: "integer",
        ColumnType.TOKEN: "integer",
        ColumnType.TIME: "text",
    },
    OutboxDatabase.MARIADB: {
        ColumnType.ID: "char(36)",
        ColumnType.STRING: "varchar({})",
        ColumnType.TEXT: "mediumtext",
        ColumnType.JSON: "json",  # a longtext with a check that it is JSON
        ColumnType.INTEGER: "integer",
        ColumnType.TOKEN: "bigint",
        ColumnType.TIME: "datetime(6)",
    },
}

NOW = {
    OutboxDatabase.POSTGRESQL: "clock_timestamp()",
    OutboxDatabase.SQLITE: "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    OutboxDatabase.MARIADB: "utc_timestamp(6)",
}
"""The clock of the database at the statement, in the form in which it stores times."""

_NEW_ID = {
    OutboxDatabase.POSTGRESQL: "gen_random_uuid()",
    OutboxDatabase.SQLITE: (
        "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'"
        " || substr('89ab', 1 + abs(random() % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
    ),
    OutboxDatabase.MARIADB: "uuid()",
}

_EPOCH = {
    OutboxDatabase.POSTGRESQL: "'1970-01-01 00:00:00+00'",
    OutboxDatabase.SQLITE: "'1970-01-01 00:00:00.000000'",
    OutboxDatabase.MARIADB: "'1970-01-01 00:00:00.000000'",
}

# Order keys and statuses differ by case, and every character of a payload must fit.
_TABLE_OPTIONS = {OutboxDatabase.MARIADB: " engine = InnoDB default character set utf8mb4 collate utf8mb4_bin"}

# A hint for relays that listen. Notifying transactions commit one after another, so an application that writes
# thousands of events a second may drop the trigger: relays also poll.
_HINT = (
    "create or replace function event_outbox_hint() returns trigger language plpgsql as"
    f" $$ begin perform pg_notify('{OUTBOX}', ''); return null; end $$",
    f"drop trigger if exists event_outbox_hint on {OUTBOX}",
    f"create trigger event_outbox_hint after insert on {OUTBOX} for each statement"
    " execute function event_outbox_hint()",
)


def ddl(database: OutboxDatabase) -> list[str]:
    """The statements that create all tables and indexes; each is without effect if its table or index exists."""
    return changes(database, {})


def changes(database: OutboxDatabase, existing: Mapping[str, Collection[str]]) -> list[str]:
    """The statements that create missing tables, columns and indexes. `existing` has the columns by table.

    Raises Conflict for a table of the same name that lacks a required column.
    """
    return [statement for table in TABLES for statement in _table_changes(database, table, existing.get(table.name))]


def _table_changes(database: OutboxDatabase, table: OutboxTable, existing: Collection[str] | None) -> Iterator[str]:
    if not existing:
        lines = [_column(database, column) for column in table.columns]
        lines[0] += " primary key"
        body = ",\n".join(f"    {line}" for line in lines)
        yield f"create table if not exists {table.name} (\n{body}\n){_TABLE_OPTIONS.get(database, '')}"
        is_changed = True
    else:
        if missing := sorted(table.required - set(existing)):
            raise Conflict(
                "outbox.table",
                f"the table {table.name} exists but has no column {', '.join(missing)}",
                hint="rename that table, or add the columns (fieldpost outbox ddl prints their types)",
            )
        added = [column for column in table.columns if column.name not in existing]
        for column in added:
            yield f"alter table {table.name} add column {_column(database, column)}"
        is_changed = bool(added)
    yield from _indexes(database, table)
    # Only with the first change, so that a dropped trigger stays away.
    if is_changed and table.name == OUTBOX and database is OutboxDatabase.POSTGRESQL:
        yield from _HINT


def index_columns(database: OutboxDatabase, table: OutboxTable) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and columns of the table's indexes on this database."""
    for index in table.indexes:
        if database is not OutboxDatabase.MARIADB or not index.where:
            yield index.name, index.columns
        elif index.mariadb:  # otherwise another index serves its queries
            yield index.name, index.mariadb


def _indexes(database: OutboxDatabase, table: OutboxTable) -> Iterator[str]:
    conditions = {index.name: index.where for index in table.indexes}
    for name, columns in index_columns(database, table):
        condition = conditions[name] if database is not OutboxDatabase.MARIADB else ""
        where = f" where {condition}" if condition else ""
        yield f"create index if not exists {name} on {table.name} ({', '.join(columns)}){where}"


def _column(database: OutboxDatabase, column: TableColumn) -> str:
    sql_type = _TYPES[database][column.type].format(column.length)
    null = "" if column.is_nullable else " not null"
    return f"{column.name} {sql_type}{null}{_default(database, column)}"


def _default(database: OutboxDatabase, column: TableColumn) -> str:
    match column.default:
        case None:
            return ""
        case ColumnDefault.NEW_ID:
            return f" default ({_NEW_ID[database]})"
        case ColumnDefault.NOW:
            return f" default ({NOW[database]})"
        case ColumnDefault.EPOCH:
            return f" default {_EPOCH[database]}"
        case int(number):
            return f" default {number}"
        case str(text):
            return f" default '{text}'"
