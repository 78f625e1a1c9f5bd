"""The clock of an embedded central is set back: waiting rows wait for as long as they would have, and it is logged."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost.central.store.figures import nodes
from fieldpost.central.store.figures.redating import AWAITED
from fieldpost.central.store.schema.tables import metadata
from fieldpost.central.upkeep.clock_watch import ClockWatch
from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre
from support.running_central import RunningCentral, clock_off_by

DAY_S = 86_400.0


async def scalar(centre: Centre, sql: str) -> int:
    def look(conn: Connection) -> int:
        return int(conn.execute(text(sql)).scalar_one())

    return await centre.store.read(look)


async def retrying(centre: Centre) -> str:
    """A notification that is due again in 60 s."""
    await centre.add_channel(max_retries=10, retry_delay_s=60.0)
    await centre.add_list()
    centre.adapter.answer("ops", TransientFailure("451 4.2.1 busy"))
    sent = await centre.send()
    await centre.deliver()
    assert (await centre.get(sent)).status is Status.RETRYING
    return sent


@pytest.mark.fault(26)
@pytest.mark.parametrize("how", ["while it runs", "while it is stopped"])
async def test_a_clock_set_back_by_a_day_delays_no_retry(sqlite_url: str, clock: ManualClock, how: str) -> None:
    async with open_centre(sqlite_url, clock) as centre:
        watch = ClockWatch(centre.store, clock)
        sent = await retrying(centre)
        fresh = await centre.send()
        await centre.store.write(nodes.start, "node-0", "host", "1", now=clock.now())
        clock.step(-DAY_S)
        with capture_logs() as logs:
            if how == "while it is stopped":
                watch = ClockWatch(centre.store, clock)
                await watch.start()
            await watch.sweep()
        assert [(line["event"], line["seconds"], line["notifications"]) for line in logs] == [
            ("clock.set_back", DAY_S, 2)
        ]
        found = await centre.get(sent)
        assert (found.due_at, found.next_attempt_at) == (clock.now() + timedelta(seconds=60),) * 2
        await centre.deliver()
        assert (await centre.get(fresh)).status is Status.DELIVERED
        assert (await centre.get(sent)).status is Status.RETRYING, "its 60 s are not over"
        clock.advance(60)
        await centre.deliver()
        assert (await centre.get(sent)).status is Status.DELIVERED

        with capture_logs() as logs:
            await watch.sweep()
            await watch.start()
        assert logs == [], "once is enough"


def test_every_column_with_a_due_time_is_moved() -> None:
    awaited = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        if column.name.endswith("_until") or column.name in ("due_at", "free_at", "next_at", "next_attempt_at")
    }
    assert awaited <= {(table, column) for table, columns in AWAITED.items() for column in columns}


async def test_breakers_rates_bulk_actions_and_login_delays_wait_no_longer_either(
    sqlite_url: str, clock: ManualClock
) -> None:
    async with open_centre(sqlite_url, clock) as centre:
        watch = ClockWatch(centre.store, clock)
        soon = int((clock.now() + timedelta(seconds=30)).timestamp() * 1e6)
        await centre.execute(
            f"insert into breakers (key, state, failures, open_until, version) values ('c', 'open', 3, {soon}, 1)",
            "insert into bulk_actions (action_id, verb, actor, reason, as_of, created_at, status, due_at)"
            f" values ('019b76da-a800-7000-8000-000000000000', 'retry', 'a', 'r', 0, 0, 'running', {soon})",
            f"insert into login_delays (key, failures, failed_at, free_at) values ('u', 9, {soon}, {soon})",
            f"insert into rates (key, next_at) values ('r', {soon})",
        )
        clock.step(-DAY_S)
        await watch.sweep()
        columns = (
            ("breakers", "open_until"),
            ("bulk_actions", "due_at"),
            ("login_delays", "free_at"),
            ("rates", "next_at"),
        )
        for table, column in columns:
            assert await scalar(centre, f"select {column} from {table}") == soon - DAY_S * 1e6, table


async def test_ordinary_corrections_and_steps_forward_move_nothing(sqlite_url: str, clock: ManualClock) -> None:
    async with open_centre(sqlite_url, clock) as centre:
        watch = ClockWatch(centre.store, clock)
        sent = await retrying(centre)
        due_at = (await centre.get(sent)).due_at
        with capture_logs() as logs:
            clock.step(-1)
            await watch.sweep()
            clock.step(1)
            clock.advance(3600)
            await watch.sweep()
            assert logs == []
            clock.step(DAY_S)
            await watch.sweep()
            await watch.sweep()
        assert [line["event"] for line in logs] == ["clock.set_forward"]
        assert (await centre.get(sent)).due_at == due_at


async def test_central_reports_at_start_that_its_clock_was_set_back(tmp_path: Path) -> None:
    store_url = f"sqlite:///{tmp_path}/central.db"
    async with RunningCentral(store_url, tmp_path) as node:
        await node.stop()
    async with RunningCentral(store_url, tmp_path, first=clock_off_by(-DAY_S)) as node:
        (found,) = node.events("clock.set_back")
        assert found["seconds"] == pytest.approx(DAY_S, abs=60)
