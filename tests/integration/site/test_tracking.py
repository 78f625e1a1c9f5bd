"""The tracking table beside the buffer: its cursor and its retention."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from fieldpost.core.errors import NotFound, OperationFailed
from fieldpost.core.sites.message import CallStatus
from fieldpost.site.buffer import event_log, keys, tracking
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.options import EventOptions, TrackingOptions
from fieldpost.site.upkeep import BufferUpkeep
from support.plant import RETRIES_MAX, Plant

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


def test_each_new_file_has_a_new_incarnation(tmp_path: Path) -> None:
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
def test_ended_record_is_kept_seven_days_and_a_parked_one_forever(plant: Plant) -> None:
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


def test_purge_runs_in_small_steps_until_complete(plant: Plant) -> None:
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
def test_upkeep_and_cursors_use_their_indexes(tmp_path: Path, statement: str, index: str) -> None:
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
def test_table_enforces_the_rules(plant: Plant, column: str, value: object) -> None:
    call_id = plant.site.external("erp").call("GET", "/")
    plant.site._buffer.write(
        lambda cursor: cursor.execute("UPDATE tracking SET status = 'retrying', terminal_at = NULL, last_error = NULL")
    )
    with pytest.raises(apsw.ConstraintError):
        plant.site._buffer.write(
            lambda cursor: cursor.execute(f"UPDATE tracking SET {column} = ? WHERE call_id = ?", (value, call_id))
        )


def test_ended_record_does_not_change(plant: Plant) -> None:
    call_id = plant.site.external("erp").call("GET", "/")
    before = plant.record(call_id)
    now = plant.clock.now()
    changed = plant.site._buffer.write(lambda cursor: tracking.change(cursor, call_id, CallStatus.RETRYING, now))
    assert changed is None
    assert plant.record(call_id) == before


async def test_upkeep_runs_in_the_background_and_stops_on_request(plant: Plant) -> None:
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
