"""The judgement of an outbox, from facts alone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.core.checks import CheckVerdict
from fieldpost.core.times import to_text
from fieldpost.outbox.doctor.checks import (
    clock_check,
    relay_checks,
    row_checks,
    schema_checks,
    space_checks,
    version_check,
)
from fieldpost.outbox.doctor.facts import OutboxRows, OutboxSchema, RelayTask, RowGroup
from fieldpost.outbox.tables import TABLES, OutboxDatabase

OK, WARNING, FAILING = CheckVerdict.OK, CheckVerdict.WARNING, CheckVerdict.FAILING
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.req("DEC-56")
@pytest.mark.parametrize(
    ("database", "version", "verdict", "text"),
    [
        ("postgresql", "16.4 (Debian 16.4-1)", OK, "PostgreSQL 16.4"),
        ("postgresql", "12.20", FAILING, "PostgreSQL 12.20 is too old: upgrade to 13"),
        ("sqlite", "3.51.3", OK, "SQLite 3.51.3"),
        ("sqlite", "3.40.1", WARNING, "can corrupt a WAL file that several processes write"),
        ("sqlite", "3.37.2", FAILING, "SQLite 3.37.2 is too old: upgrade to 3.38"),
        ("mariadb", "10.11.19-MariaDB-0+deb12u1", OK, "MariaDB 10.11.19"),
        ("mariadb", "10.5.9-MariaDB", FAILING, "is too old: upgrade to 10.6"),
        ("mariadb", "8.0.36", FAILING, "this is MySQL 8.0.36: use MariaDB 10.6 or later"),
    ],
)
def test_database_that_is_too_old_is_named(database: str, version: str, verdict: CheckVerdict, text: str) -> None:
    check = version_check(OutboxSchema(OutboxDatabase(database), version, {}, {}, {}))
    assert check.verdict is verdict
    assert text in check.detail


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0, OK), (4, OK), (-4, OK), (9, WARNING), (-9, WARNING), (7200, WARNING)]
)
def test_clocks_more_than_five_seconds_apart_are_a_warning(seconds: int, verdict: CheckVerdict) -> None:
    other = to_text(NOW + timedelta(seconds=seconds))
    assert clock_check(NOW, NOW + timedelta(seconds=1), other, "the clock").verdict is verdict


@pytest.mark.parametrize(
    ("database", "space", "is_found"),
    [
        ("postgresql", (60_000, 10), True),
        ("postgresql", (60_000, 40_000), False),
        ("postgresql", (10, 0), False),
        ("sqlite", (80 * 1024**2, 100 * 1024**2), True),
        ("sqlite", (80 * 1024**2, 1024**3), False),
        ("mariadb", (100 * 1024**2, 1024**2), True),
        ("mariadb", (1024**2, 1024), False),
    ],
)
def test_wasted_space_is_named(database: str, space: tuple[int, int], is_found: bool) -> None:
    assert bool(list(space_checks(OutboxDatabase(database), space))) is is_found


ID = "0198c8a0-0000-7000-8000-000000000001"
BAD_ROWS = OutboxRows(
    now=to_text(NOW),
    by_status={"PENDING": 3, "DONE": 1},
    due=3,
    due_age_s=600.0,
    unusable=1,
    published_age_s=7200.0,
    parked=2,
    poison=[RowGroup("topic.unknown", 1, ID), RowGroup("event.payload", 2, ID)],
    blocked=[RowGroup("pump-3", 3, ID)],
    without_template=[RowGroup("SERVICE_DOWN", 1, ID)],
    sent_age_s=20 * 86400.0,
    tasks=[RelayTask("relay.publish", "failed", 1.0, "relay.denied: central answered 401")],
    space=(0, 0),
)
COMPLETE = {table.name: {column.name: "text" for column in table.columns} for table in TABLES}


def test_each_finding_about_rows_says_what_to_do() -> None:
    found = [(check.name, check.detail) for check in row_checks(BAD_ROWS, 7.0) if check.verdict is not OK]
    advice = [(name, detail.rpartition(": ")[2]) for name, detail in found]
    assert advice == [
        ("rows", "set them to PENDING or delete them"),
        ("stuck", "see the checks of relay and central"),
        ("stuck", "update event_outbox set event_outbox_id = the UUID"),
        ("stuck", f"fieldpost outbox retry {ID}"),
        ("central", "see the Health page of the console"),
        ("parked", "retry it there, and the row becomes SENT"),
        ("poison", "fieldpost outbox retry"),
        ("poison", "fieldpost outbox retry; or fieldpost outbox discard ID"),
        ("templates", "save one at central (fieldpost templates save SERVICE_DOWN)"),
        ("purge", "check that a relay is running"),
    ]


@pytest.mark.parametrize(
    ("tasks", "verdict", "advice"),
    [
        ([], FAILING, "start one: fieldpost relay"),
        ([RelayTask("relay.publish", "ok", 301.0, None)], FAILING, "start one: fieldpost relay"),
        (BAD_ROWS.tasks, WARNING, "see the checks of token, central and database"),
    ],
)
def test_each_finding_about_the_relay_says_what_to_do(
    tasks: list[RelayTask], verdict: CheckVerdict, advice: str
) -> None:
    [check] = relay_checks(replace(BAD_ROWS, tasks=tasks), is_recorded=True)
    assert (check.verdict, check.detail.endswith(advice)) == (verdict, True), check.detail


@pytest.mark.parametrize("database", list(OutboxDatabase))
def test_each_finding_about_tables_says_what_to_do(database: OutboxDatabase) -> None:
    fix = f"Outbox.create_tables adds them, fieldpost outbox ddl {database} prints them"
    lacking = {name: dict(list(columns.items())[:3]) for name, columns in COMPLETE.items()}
    for columns, count in (({}, len(TABLES)), (lacking, len(TABLES)), (COMPLETE, 0)):
        found = list(schema_checks(OutboxSchema(database, "", columns, {}, {})))
        tables = [check for check in found if check.name == "tables" and check.detail.endswith(fix)]
        indexes = [check.detail for check in found if check.name == "indexes"]
        assert len(tables) == count, found
        assert bool(indexes) is bool(columns)
        assert all(detail.endswith(fix) for detail in indexes)
