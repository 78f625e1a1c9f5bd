"""The tracking table beside the buffer: its cursor, its retention, and what a file of an older version becomes."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import NotFound, OperationFailed
from fieldpost.core.sites.message import CallStatus, Message
from fieldpost.site.buffer import event_log, keys, tracking
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.connection import SCHEMA_VERSION, connect
from fieldpost.site.config.options import EventOptions, TrackingOptions
from fieldpost.site.upkeep import BufferUpkeep
from support.plant import RETRIES_MAX, Plant

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
# The first version of the file, as it was.
VERSION_1 = """
CREATE TABLE messages (
    sequence             INTEGER PRIMARY KEY,
    message_id           TEXT    NOT NULL UNIQUE,
    category             TEXT    NOT NULL CHECK (category IN ('notification', 'external_call', 'database_write')),
    call_id TEXT,
    target               TEXT    NOT NULL,
    payload              TEXT    NOT NULL,
    status               TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'retrying', 'parked')),
    retry_count          INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error           TEXT,
    created_at           INTEGER NOT NULL,
    last_attempt_at      INTEGER,
    due_at               INTEGER NOT NULL DEFAULT 0,
    claimed_by           TEXT,
    claim_token          INTEGER NOT NULL DEFAULT 0,
    claimed_until        INTEGER,
    CHECK ((category = 'notification') = (call_id IS NULL)),
    CHECK (category <> 'notification' OR status <> 'parked')
) STRICT;
CREATE TABLE rejected (
    message_id  TEXT    PRIMARY KEY,
    category    TEXT    NOT NULL,
    target      TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    error       TEXT    NOT NULL,
    retry_count INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    rejected_at INTEGER NOT NULL
) STRICT;
INSERT INTO messages (message_id, category, target, payload, created_at, status, retry_count, last_error) VALUES
    ('n-1', 'notification', 'central', '{}', 1, 'pending', 0, NULL),
    ('n-2', 'notification', 'central', '{"é":1}', 2, 'retrying', 7, 'not now');
INSERT INTO rejected VALUES ('n-0', 'notification', 'central', '{}', 'a.code', 'an error', 3, 1, 2);
PRAGMA user_version = 1;
"""


def shape(path: Path) -> list[tuple[object, ...]]:
    """All tables and indexes, without their comments and the spacing."""
    connection = connect(path)
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    connection.close()
    return [(kind, name, None if sql is None else _plain(str(sql))) for kind, name, sql in rows]


def _plain(sql: str) -> list[str]:
    return " ".join(line.partition("--")[0] for line in sql.splitlines()).split()


def test_a_file_of_version_1_becomes_what_a_new_one_is_and_keeps_its_rows(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    connection = apsw.Connection(str(old))
    connection.execute(VERSION_1)
    connection.close()
    buffer = Buffer(old)
    taken = buffer.take(NOW, items_max=10, bytes_max=1000)
    assert [(message.message_id, message.payload) for message in taken] == [("n-1", "{}"), ("n-2", '{"é":1}')]
    tried = buffer.find("n-2")
    assert isinstance(tried, Message)
    assert (tried.retry_count, tried.last_error) == (7, "not now")
    assert [message.code for message in buffer.rejected()] == ["a.code"]
    buffer.close()
    Buffer(new).close()
    assert shape(old) == shape(new)
    assert connect(old).pragma("user_version") == SCHEMA_VERSION == 3


def test_each_new_file_has_an_incarnation_of_its_own(tmp_path: Path) -> None:
    seen = set()
    for name in ("a", "b"):
        for _ in range(2):
            buffer = Buffer(tmp_path / name)
            seen.add(tracking.Tracking(buffer.read).incarnation())
            buffer.close()
    assert len(seen) == 2


@pytest.mark.req("TRK-01", "TRK-11", "DEC-29")
def test_every_change_has_the_next_version_and_the_next_place_in_the_change_sequence(plant: Plant) -> None:
    first = plant.site.external("erp").call("GET", "/")
    second = plant.site.external("dead").call("GET", "/")
    assert [(r.call_id, r.version, r.change_sequence) for r in plant.site.tracking.changed_since(0, 10)] == [
        (first, 2, 2),
        (second, 2, 4),
    ]
    plant.sweep_later()
    [changed] = plant.site.tracking.changed_since(4, 10)
    assert (changed.call_id, changed.version, changed.change_sequence) == (second, 3, 5)
    assert plant.site.tracking.changed_since(5, 10) == []
    assert [r.call_id for r in plant.site.tracking.changed_since(0, 1)] == [first]
    assert plant.site.tracking.counts() == {CallStatus.RETRYING: 1}


@pytest.mark.req("TRK-13", "TRK-03")
def test_a_record_stays_seven_days_after_its_end_and_a_parked_one_for_ever(plant: Plant) -> None:
    delivered = plant.site.external("erp").call("GET", "/")
    plant.server.on().answer(404)
    with pytest.raises(OperationFailed) as caught:
        plant.site.external("erp").call("GET", "/")
    failed = caught.value.call_id or ""
    parked = plant.site.external("dead").call("GET", "/")
    for _ in range(RETRIES_MAX):
        plant.sweep_later()
    ended = plant.record(delivered).terminal_at
    assert ended is not None
    plant.clock.advance((ended + timedelta(days=7) - plant.clock.now()).total_seconds())
    upkeep = BufferUpkeep(plant.site._buffer, plant.clock)
    asyncio.run(upkeep.sweep())
    assert plant.record(delivered).is_delivered
    assert plant.record(failed).status is CallStatus.FAILED
    last = plant.site.tracking.last_change()
    plant.clock.advance(1)
    assert asyncio.run(upkeep.sweep()) == 2
    for call_id in (delivered, failed):
        with pytest.raises(NotFound):
            plant.record(call_id)
    plant.clock.advance(400 * 86_400)
    asyncio.run(upkeep.sweep())
    assert plant.record(parked).status is CallStatus.PARKED
    assert plant.message(parked) is not None
    assert plant.site.tracking.last_change() == last
    plant.server.behave()
    assert plant.record(plant.site.external("erp").call("GET", "/")).change_sequence > last, "never used twice"


@pytest.mark.req("TRK-13")
def test_the_retention_is_a_setting(plant: Plant) -> None:
    call_id = plant.site.external("erp").call("GET", "/")
    plant.clock.advance(86_401)
    asyncio.run(BufferUpkeep(plant.site._buffer, plant.clock, tracking=TrackingOptions(retention_days=2)).sweep())
    assert plant.record(call_id).is_delivered
    asyncio.run(BufferUpkeep(plant.site._buffer, plant.clock, tracking=TrackingOptions(retention_days=1)).sweep())
    with pytest.raises(NotFound):
        plant.record(call_id)


def test_a_purge_goes_in_small_steps_until_nothing_is_left_to_go(plant: Plant) -> None:
    for _ in range(3):
        plant.site.external("erp").call("GET", "/")
    buffer = plant.site._buffer
    later = plant.clock.now() + timedelta(days=8)
    assert buffer.write(lambda cursor: tracking.purge(cursor, later, limit=2)) == 2
    assert buffer.write(lambda cursor: tracking.purge(cursor, later, limit=2)) == 1
    assert buffer.write(lambda cursor: tracking.purge(cursor, later, limit=2)) == 0


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (tracking._PURGE, "tracking_terminal"),
        (tracking._CHANGED, "sqlite_autoindex_tracking_2"),
        (tracking._COUNTS, "tracking_live"),
        (tracking._PARKED, "tracking_live"),
        (keys._PURGE, "keys_by_age"),
        (event_log._DELETE, "PRIMARY KEY"),
    ],
)
def test_upkeep_and_cursors_walk_their_indexes(tmp_path: Path, statement: str, index: str) -> None:
    names = ("before", "limit", "cursor", "skipped", "last")
    buffer = Buffer(tmp_path / "buffer.db")
    plan = buffer.read(
        lambda cursor: [
            str(row[3]) for row in cursor.execute("EXPLAIN QUERY PLAN " + statement, dict.fromkeys(names, 0))
        ]
    )
    buffer.close()
    assert any(index in step for step in plan), plan


@pytest.mark.parametrize(
    ("column", "value"),
    [("status", "gone"), ("category", "notification"), ("terminal_at", 5), ("retry_count", -1), ("status", "parked")],
)
def test_the_table_itself_keeps_the_rules(plant: Plant, column: str, value: object) -> None:
    call_id = plant.site.external("erp").call("GET", "/")
    plant.site._buffer.write(
        lambda cursor: cursor.execute("UPDATE tracking SET status = 'retrying', terminal_at = NULL, last_error = NULL")
    )
    with pytest.raises(apsw.ConstraintError):
        plant.site._buffer.write(
            lambda cursor: cursor.execute(f"UPDATE tracking SET {column} = ? WHERE call_id = ?", (value, call_id))
        )


def test_an_ended_record_changes_no_more(plant: Plant) -> None:
    call_id = plant.site.external("erp").call("GET", "/")
    before = plant.record(call_id)
    now = plant.clock.now()
    changed = plant.site._buffer.write(lambda cursor: tracking.change(cursor, call_id, CallStatus.RETRYING, now))
    assert changed is None
    assert plant.record(call_id) == before


async def test_upkeep_runs_beside_the_rest_and_stops_when_told(plant: Plant) -> None:
    plant.site.external("erp").call("GET", "/")
    plant.clock.advance(8 * 86_400)
    stopping = asyncio.Event()
    upkeep = BufferUpkeep(plant.site._buffer, plant.clock, events=EventOptions())
    running = asyncio.create_task(upkeep.run(stopping))
    await plant.clock.wait_sleepers(1)
    assert plant.site.tracking.changed_since(0, 10) == []
    stopping.set()
    async with asyncio.timeout(20):
        await running
