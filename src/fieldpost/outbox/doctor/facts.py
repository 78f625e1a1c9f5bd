"""The state of an outbox, read in one transaction: tables and indexes, then rows, tasks of the relay and free space."""

from dataclasses import dataclass
from typing import Any

from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.events.relaying import UNANSWERED
from fieldpost.outbox.relay.database import SqlStep, SqlTransaction
from fieldpost.outbox.relay.dialect import OutboxDialect
from fieldpost.outbox.schema_queries import COLUMNS_QUERY, TABLE_NAMES, TABLE_OIDS, columns_by_table
from fieldpost.outbox.tables import EVENT_OUTBOX, IS_OPEN, IS_SENT, IS_UNPUBLISHED, OutboxDatabase

GROUPS_MAX = 5
"""How many codes, event types or order keys are listed."""

_VERSION = {
    OutboxDatabase.POSTGRESQL: "select current_setting('server_version')",
    OutboxDatabase.SQLITE: "select sqlite_version()",
    OutboxDatabase.MARIADB: "select version()",
}
_INDEXES = {
    OutboxDatabase.POSTGRESQL: (
        "select c.relname::text, case when i.indisvalid then pg_get_indexdef(c.oid) else 'invalid' end"
        " from pg_index i join pg_class c on c.oid = i.indexrelid"
        f" where i.indrelid in ({TABLE_OIDS})"
    ),
    OutboxDatabase.SQLITE: (
        f"select name, sql from sqlite_master where type = 'index' and sql is not null and tbl_name in ({TABLE_NAMES})"
    ),
    OutboxDatabase.MARIADB: (
        "select index_name, concat('(', group_concat(column_name order by seq_in_index separator ', '), ')')"
        " from information_schema.statistics"
        f" where table_schema = database() and table_name in ({TABLE_NAMES}) group by table_name, index_name"
    ),
}
_SPACE = {
    OutboxDatabase.POSTGRESQL: (
        "select n_dead_tup, n_live_tup from pg_stat_user_tables where relid = to_regclass('event_outbox')"
    ),
    OutboxDatabase.SQLITE: (
        "select f.freelist_count * s.page_size, p.page_count * s.page_size"
        " from pragma_freelist_count() f, pragma_page_count() p, pragma_page_size() s"
    ),
    OutboxDatabase.MARIADB: (
        "select data_free, data_length + index_length from information_schema.tables"
        " where table_schema = database() and table_name = 'event_outbox'"
    ),
}
_ENGINES = (
    "select table_name, engine from information_schema.tables"
    f" where table_schema = database() and table_name in ({TABLE_NAMES})"
)


@dataclass(frozen=True, slots=True)
class OutboxSchema:
    """The tables as they are."""

    database: OutboxDatabase
    version: str
    columns: dict[str, dict[str, str]]
    """Type by column by table."""
    indexes: dict[str, str]
    """Definition by name; `invalid` for one that PostgreSQL does not use."""
    engines: dict[str, str]
    """The engine of each table on MariaDB."""

    @property
    def has_outbox(self) -> bool:
        """Whether the rows can be read."""
        return {column.name for column in EVENT_OUTBOX.columns} <= self.columns.get(EVENT_OUTBOX.name, {}).keys()


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows with the same code, event type or order key."""

    name: str
    count: int
    example: str
    """The id of one of them."""


@dataclass(frozen=True, slots=True)
class RelayTask:
    """A row of `background_tasks` that a relay wrote."""

    name: str
    status: str
    age_s: float
    """Since its last run."""
    error: str | None


@dataclass(frozen=True, slots=True)
class OutboxRows:
    """Counts and ages of the rows, by the database's clock."""

    now: str
    """The database's time, RFC 3339."""
    by_status: dict[str, int]
    """Open rows by status."""
    due: int
    """Unpublished rows that are due for more than a minute and that no relay has claimed."""
    due_age_s: float
    unusable: int
    """Unpublished rows whose id is no text."""
    published_age_s: float
    """The age of the oldest row that is published and still open, in processing."""
    parked: int
    """Rows with a notification that is parked or discarded at central."""
    poison: list[RowGroup]
    """Unpublished FAILED rows by code."""
    blocked: list[RowGroup]
    """Rows behind an unanswered one, by order key; the example is the unanswered row."""
    without_template: list[RowGroup]
    """Rows without a template by event type."""
    sent_age_s: float
    """The age of the oldest SENT row."""
    tasks: list[RelayTask] | None
    """None if the table is missing."""
    space: tuple[int, int]
    """Wasted and used: rows on PostgreSQL, bytes elsewhere."""


def read_schema(database: OutboxDatabase) -> SqlTransaction[OutboxSchema]:
    """The present tables, columns, types and indexes."""
    dialect = OutboxDialect(database)
    version = yield SqlStep(dialect.compile(_VERSION[database]), {})
    columns = yield SqlStep(dialect.compile(COLUMNS_QUERY[database]), {})
    indexes = yield SqlStep(dialect.compile(_INDEXES[database]), {})
    engines: dict[str, str] = {}
    if database is OutboxDatabase.MARIADB:
        found = yield SqlStep(dialect.compile(_ENGINES), {})
        engines = {row[0]: str(row[1]) for row in found.rows}
    return OutboxSchema(
        database,
        str(version.rows[0][0]),
        columns_by_table(tuple(row) for row in columns.rows),
        {row[0]: str(row[1]) for row in indexes.rows},
        engines,
    )


def read_rows(schema: OutboxSchema) -> SqlTransaction[OutboxRows]:
    """Counts of the rows; only for a schema that `has_outbox`."""
    dialect = OutboxDialect(schema.database)

    def step(sql: str) -> SqlStep:
        return SqlStep(dialect.compile(sql), {})

    now = yield step(f"select {dialect.as_rfc3339(dialect.now)}")
    statuses = yield step(f"select status, count(*) from event_outbox where {IS_OPEN} group by status")
    since = "case when due_at < created_at then created_at else due_at end"
    due = yield step(
        f"select count(*), max({dialect.age_s(since)}) from event_outbox where {IS_UNPUBLISHED}"
        f" and due_at <= {dialect.now} and {dialect.age_s(since)} > 60"
        f" and (lease_until is null or lease_until <= {dialect.now}) and {dialect.is_usable_id('event_outbox_id')}"
    )
    unusable = yield step(
        f"select count(*) from event_outbox where {IS_UNPUBLISHED} and not ({dialect.is_usable_id('event_outbox_id')})"
    )
    published = yield step(
        f"select max({dialect.age_s('published_at')}) from event_outbox"
        f" where {IS_OPEN} and status = '{OutboxStatus.PROCESSING}' and published_at is not null"
    )
    parked = yield step(
        f"select count(*) from event_outbox"
        f" where {IS_OPEN} and status = '{OutboxStatus.FAILED}' and published_at is not null"
    )
    failed = f"{IS_UNPUBLISHED} and status = '{OutboxStatus.FAILED}'"
    poison = yield step(_groups(dialect, _code(schema.database), failed))
    templates = yield step(
        _groups(dialect, "event_type", f"{IS_OPEN} and status = '{OutboxStatus.TEMPLATE_NOT_FOUND}'")
    )
    unanswered = f"case when status = 'FAILED' and last_error like '{UNANSWERED}%' then event_outbox_id end"
    blocked = yield step(
        f"select order_key, count(*), {_smallest(dialect, unanswered)} from event_outbox"
        f" where order_key is not null and {IS_UNPUBLISHED}"
        f" group by order_key having count(*) > 1 and count({unanswered}) > 0"
        f" order by count(*) desc limit {GROUPS_MAX}"
    )
    sent = yield step(f"select {dialect.age_s('min(updated_at)')} from event_outbox where {IS_SENT}")
    space = yield step(_SPACE[schema.database])
    tasks: list[RelayTask] | None = None
    if {"task_name", "status", "last_run_at", "error"} <= schema.columns.get("background_tasks", {}).keys():
        found = yield step(
            f"select task_name, status, {dialect.age_s('last_run_at')}, error from background_tasks"
            " where task_name like 'relay.%' order by task_name"
        )
        tasks = [RelayTask(row[0], str(row[1]), _number(row[2]), row[3]) for row in found.rows]
    return OutboxRows(
        now=str(now.rows[0][0]),
        by_status={str(row[0]): int(row[1]) for row in statuses.rows},
        due=int(due.rows[0][0]),
        due_age_s=_number(due.rows[0][1]),
        unusable=int(unusable.rows[0][0]),
        published_age_s=_number(published.rows[0][0]),
        parked=int(parked.rows[0][0]),
        poison=_row_groups(poison.rows),
        blocked=_row_groups(blocked.rows),
        without_template=_row_groups(templates.rows),
        sent_age_s=_number(sent.rows[0][0]),
        tasks=tasks,
        space=(int(space.rows[0][0] or 0), int(space.rows[0][1] or 0)) if space.rows else (0, 0),
    )


def _groups(dialect: OutboxDialect, name: str, where: str) -> str:
    return (
        f"select {name}, count(*), {_smallest(dialect, 'event_outbox_id')} from event_outbox where {where}"
        f" group by {name} order by count(*) desc limit {GROUPS_MAX}"
    )


def _smallest(dialect: OutboxDialect, column: str) -> str:
    """PostgreSQL has no min() of UUIDs before version 18."""
    return f"min(cast({column} as text))" if dialect.is_postgresql else f"min({column})"


def _code(database: OutboxDatabase) -> str:
    """The code in `last_error`, which is `CODE: message`."""
    match database:
        case OutboxDatabase.POSTGRESQL:
            return "split_part(coalesce(last_error, ''), ':', 1)"
        case OutboxDatabase.SQLITE:
            return "substr(coalesce(last_error, ''), 1, max(instr(coalesce(last_error, ''), ':') - 1, 0))"
        case OutboxDatabase.MARIADB:
            return "substring_index(coalesce(last_error, ''), ':', 1)"


def _row_groups(rows: Any) -> list[RowGroup]:
    return [RowGroup(str(row[0]) or "unknown", int(row[1]), str(row[2])) for row in rows]


def _number(value: Any) -> float:
    return max(0.0, float(value or 0.0))
