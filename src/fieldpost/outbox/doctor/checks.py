"""The judgement of an outbox: pure functions from facts to checks. Each finding says what to do."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.quantities import plural
from fieldpost.core.times import from_text
from fieldpost.outbox.ddl import index_columns
from fieldpost.outbox.doctor.facts import OutboxRows, OutboxSchema, RowGroup
from fieldpost.outbox.tables import EVENT_OUTBOX, TABLES, OutboxDatabase

VERSION_MIN = {
    OutboxDatabase.POSTGRESQL: (13,),
    OutboxDatabase.SQLITE: (3, 38),
    OutboxDatabase.MARIADB: (10, 6),
}
SQLITE_SAFE = (3, 51, 3)
"""Earlier versions can corrupt a log that several processes write (the WAL-reset bug)."""
CLOCK_MAX = timedelta(seconds=5)
RELAY_SILENT_S = 300.0
PUBLISHED_LONG_S = 3600.0
WASTED_BYTES_MIN = 64 * 1024**2
DEAD_ROWS_MIN = 50_000
_TIME_TYPES = {
    OutboxDatabase.POSTGRESQL: "timestamp with time zone",
    OutboxDatabase.MARIADB: "datetime(6)",
}
_ADVICE = {
    "topic.unknown": "register the topic at central (fieldpost topics save NAME), then: fieldpost outbox retry",
    "topic.archived": "reopen the topic at central (topics archive NAME --reopen), then: fieldpost outbox retry",
    "event.conflict": "the id belongs to another event at central: fieldpost outbox discard ID",
    "relay.unanswered": "central did not answer; the relay tries again, and central recognises repeated events",
}


def version_check(schema: OutboxSchema) -> Check:
    """Whether the database is new enough."""
    name = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "mariadb": "MariaDB"}[schema.database]
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", schema.version)
    version = tuple(int(part) for part in found.groups() if part) if found else ()
    least = VERSION_MIN[schema.database]
    if schema.database is OutboxDatabase.MARIADB and "mariadb" not in schema.version.lower():
        return Check("database", CheckVerdict.FAILING, f"this is MySQL {schema.version}: use MariaDB 10.6 or later")
    if version < least:
        needed = ".".join(map(str, least))
        return Check("database", CheckVerdict.FAILING, f"{name} {schema.version} is too old: upgrade to {needed}")
    if schema.database is OutboxDatabase.SQLITE and version < SQLITE_SAFE:
        detail = (
            "can corrupt a WAL file that several processes write; upgrade it to 3.51.3, or run the relay as a thread"
        )
        return Check("database", CheckVerdict.WARNING, f"the relay's SQLite {schema.version} {detail}")
    return Check("database", CheckVerdict.OK, f"{name} {schema.version}")


def schema_checks(schema: OutboxSchema) -> Iterator[Check]:
    """Tables, columns, types and indexes that are not as they should be."""
    fix = f"Outbox.create_tables adds them, fieldpost outbox ddl {schema.database} prints them"
    found = list(_table_findings(schema, fix)) + list(_index_findings(schema, fix))
    yield from found or [Check("tables", CheckVerdict.OK, "tables, columns and indexes are complete")]


def _table_findings(schema: OutboxSchema, fix: str) -> Iterator[Check]:
    for table in TABLES:
        severity = CheckVerdict.FAILING if table is EVENT_OUTBOX else CheckVerdict.WARNING
        columns = schema.columns.get(table.name)
        if columns is None:
            yield Check("tables", severity, f"the table {table.name} is missing: {fix}")
        elif missing := [column.name for column in table.columns if column.name not in columns]:
            yield Check("tables", severity, f"{table.name} has no column {', '.join(missing)}: {fix}")
        if (engine := schema.engines.get(table.name, "InnoDB")).lower() != "innodb":
            detail = f"{table.name} has the engine {engine}, which has no transactions: alter table {table.name}"
            yield Check("tables", severity, f"{detail} engine = InnoDB")
    columns = schema.columns.get(EVENT_OUTBOX.name, {})
    if columns.get("payload") == "jsonb":
        detail = "event_outbox.payload is jsonb, which changes the text of a payload and may make it longer"
        yield Check("tables", CheckVerdict.WARNING, f"{detail}: alter column payload type json using payload::json")
    expected = _TIME_TYPES.get(schema.database)
    if expected and columns.get("created_at", expected) != expected:
        detail = f"event_outbox.created_at is {columns['created_at']}, so its times depend on the session's time zone"
        yield Check("tables", CheckVerdict.WARNING, f"{detail}: change it to {expected}, in UTC")


def _index_findings(schema: OutboxSchema, fix: str) -> Iterator[Check]:
    for table in TABLES:
        if table.name not in schema.columns:
            continue
        for name, columns in index_columns(schema.database, table):
            definition = schema.indexes.get(name)
            if definition is None:
                yield Check("indexes", CheckVerdict.WARNING, f"the index {name} on {table.name} is missing: {fix}")
            elif f"({', '.join(columns)})" not in definition:
                detail = "is not usable" if definition == "invalid" else f"is not on ({', '.join(columns)})"
                drop = f"drop index {name}" + (f" on {table.name}" if schema.engines else "")
                yield Check("indexes", CheckVerdict.WARNING, f"the index {name} {detail}: {drop}, then {fix}")


def row_checks(rows: OutboxRows, sent_days: float) -> Iterator[Check]:
    """Open rows: how many, and those that do not proceed with the reason."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(rows.by_status.items()))
    yield Check("rows", CheckVerdict.OK, f"open: {counts}" if counts else "no open rows")
    if unknown := sorted(set(rows.by_status) - set(OutboxStatus)):
        detail = f"rows have the status {', '.join(unknown)}, which no relay knows: set them to PENDING or delete them"
        yield Check("rows", CheckVerdict.WARNING, detail)
    if rows.due:
        detail = f"{plural(rows.due, 'row')} due for up to {_age(rows.due_age_s)} and claimed by no relay"
        yield Check("stuck", CheckVerdict.FAILING, f"{detail}: see the checks of relay and central")
    if rows.unusable:
        detail = f"{plural(rows.unusable, 'row')} with an event_outbox_id that is not a UUID as text, never claimed"
        yield Check("stuck", CheckVerdict.FAILING, f"{detail}: update event_outbox set event_outbox_id = the UUID")
    for group in rows.blocked:
        rows_ = plural(group.count - 1, "row")
        detail = f"{rows_} of order key {group.name} waiting for {group.example}, which was not answered"
        yield Check("stuck", CheckVerdict.WARNING, f"{detail}: fieldpost outbox retry {group.example}")
    if rows.published_age_s > PUBLISHED_LONG_S:
        detail = f"events wait at central for up to {_age(rows.published_age_s)}"
        yield Check("central", CheckVerdict.WARNING, f"{detail}: see the Health page of the console")
    if rows.parked:
        detail = f"{plural(rows.parked, 'row')} with a notification that is parked or discarded at central"
        yield Check("parked", CheckVerdict.WARNING, f"{detail}: retry it there, and the row becomes SENT")
    yield from _group_checks(rows)
    if rows.sent_age_s > (sent_days + 1) * 86400:
        detail = f"SENT rows are up to {_age(rows.sent_age_s)} old, and the relay keeps them for {sent_days:g} d"
        yield Check("purge", CheckVerdict.WARNING, f"{detail}: check that a relay is running")


def _group_checks(rows: OutboxRows) -> Iterator[Check]:
    for group in rows.poison:
        advice = _ADVICE.get(group.name, "fix the cause, then: fieldpost outbox retry; or fieldpost outbox discard ID")
        detail = f"{_rows(group)} not published because of {group.name} (such as {group.example})"
        yield Check("poison", CheckVerdict.WARNING, f"{detail}: {advice}")
    for group in rows.without_template:
        detail = f"{_rows(group)} of type {group.name} without a template (such as {group.example})"
        fix = f"save one at central (fieldpost templates save {group.name})"
        yield Check("templates", CheckVerdict.WARNING, f"{detail}: {fix}")


def relay_checks(rows: OutboxRows, *, is_recorded: bool) -> Iterator[Check]:
    """Whether a relay ran lately. `is_recorded` is false if the relay's settings switch `background_tasks` off."""
    start = "start one: fieldpost relay"
    if not is_recorded or rows.tasks is None:
        yield Check("relay", CheckVerdict.OK, "unknown, because background_tasks is not written")
        return
    if not rows.tasks:
        yield Check("relay", CheckVerdict.FAILING, f"no relay has ever run on this database; {start}")
        return
    silent_s = min(task.age_s for task in rows.tasks)
    if silent_s > RELAY_SILENT_S:
        yield Check("relay", CheckVerdict.FAILING, f"no relay has run for {_age(silent_s)}; {start}")
        return
    failing = [task for task in rows.tasks if task.status != "ok" and task.age_s <= RELAY_SILENT_S]
    for task in failing:
        detail = f"the relay's task {task.name} fails ({task.error or task.status})"
        yield Check("relay", CheckVerdict.WARNING, f"{detail}: see the checks of token, central and database")
    if not failing:
        yield Check("relay", CheckVerdict.OK, f"a relay ran {_age(silent_s)} ago")


def clock_check(before: datetime, after: datetime, other: str, name: str) -> Check:
    """Compare a clock, read between two times of this machine's, with the nearer of them."""
    now = from_text(other) or before
    skew = now - min(max(now, before), after)
    if abs(skew) <= CLOCK_MAX:
        return Check("clock", CheckVerdict.OK, f"{name} and this machine agree")
    side = "ahead of" if skew > timedelta(0) else "behind"
    detail = f"{name} is {_age(abs(skew.total_seconds()))} {side} this machine: synchronise the clocks (NTP)"
    return Check("clock", CheckVerdict.WARNING, detail)


def space_checks(database: OutboxDatabase, space: tuple[int, int]) -> Iterator[Check]:
    """Space that deleted and updated rows left behind."""
    wasted, used = space
    match database:
        case OutboxDatabase.POSTGRESQL if wasted > max(DEAD_ROWS_MIN, 2 * used):
            detail = f"event_outbox has {wasted} dead rows beside {used} live ones"
            fix = "vacuum event_outbox, and look for transactions that stay open (pg_stat_activity)"
        case OutboxDatabase.SQLITE if wasted > max(WASTED_BYTES_MIN, used // 2):
            detail, fix = f"{wasted // 1024**2} of {used // 1024**2} MiB of the file are free", "vacuum"
        case OutboxDatabase.MARIADB if wasted > max(WASTED_BYTES_MIN, used):
            detail = f"event_outbox has {wasted // 1024**2} MiB of free space beside {used // 1024**2} MiB of rows"
            fix = "optimize table event_outbox"
        case _:
            return
    yield Check("space", CheckVerdict.WARNING, f"{detail}: {fix}")


def _rows(group: RowGroup) -> str:
    return "1 row is" if group.count == 1 else f"{group.count} rows are"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
