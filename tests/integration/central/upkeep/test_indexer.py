"""The indexer: what has arrived becomes findable by its terms, on the leading node, and nothing waits for it."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost.central.store.search import notifications, terms
from fieldpost.central.upkeep import indexer as indexing
from fieldpost.central.upkeep.indexer import AGE_MAX, ENOUGH, Indexer
from fieldpost.central.upkeep.leader import Leader
from fieldpost.core.search.notification_filter import Filter
from fieldpost.testing import ManualClock
from support.centre import Centre


async def indexer_of(centre: Centre, *, leads: bool = True) -> Indexer:
    leader = Leader(centre.store, "node-1", centre.clock)
    assert not leads or await leader.campaign()
    return Indexer(centre.store, centre.clock, leader)


async def backlog(centre: Centre) -> int:
    return (await centre.store.read(terms.backlog)).count


async def found(centre: Centre, **wanted: Any) -> int:
    return len((await centre.store.read(notifications.find, Filter(**wanted), limit=1000)).notifications)


async def chunks(centre: Centre) -> int:
    def look(conn: Connection) -> int:
        return int(conn.execute(text("select count(*) from search_terms")).scalar_one())

    return await centre.store.read(look)


async def test_few_arrivals_wait_until_they_are_many_or_old(centre: Centre, clock: ManualClock) -> None:
    indexer = await indexer_of(centre)
    await centre.send_many(ENOUGH - 1)
    assert await indexer.sweep() == 0
    assert await found(centre, subject="pump") == ENOUGH - 1, "a search finds them all the same"
    await centre.send()
    assert await indexer.sweep() == ENOUGH
    assert (await backlog(centre), await found(centre, subject="pump")) == (0, ENOUGH)
    await centre.send()
    clock.advance(AGE_MAX.total_seconds() + 1)
    renewed = await indexer_of(centre)
    assert await renewed.sweep() == 1


async def test_backlog_is_indexed_in_batches_with_pauses(
    centre: Centre, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "BATCH_ROWS", 200)
    sizes: list[int] = []
    index = terms.index

    def watched(conn: Connection, rows_max: int, sweep: int) -> int:
        sizes.append(index(conn, rows_max, sweep))
        return sizes[-1]

    monkeypatch.setattr(terms, "index", watched)
    for _ in range(13):
        await centre.send_many(100)
        clock.advance(0.001)
    indexer = await indexer_of(centre)
    assert await indexer.sweep() == sum(sizes)
    assert set(sizes) == {200}
    assert await backlog(centre) < ENOUGH
    assert await found(centre, subject="pump") == 1000, "as many as were asked for"


async def test_a_node_that_does_not_lead_indexes_nothing(centre: Centre, clock: ManualClock) -> None:
    await centre.send_many(ENOUGH)
    indexer = await indexer_of(centre, leads=False)
    assert await indexer.sweep() == 0
    running = asyncio.create_task(indexer.run())
    await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert (await backlog(centre), await chunks(centre)) == (ENOUGH, 0)


async def test_failed_sweep_is_logged_and_the_next_continues(centre: Centre, clock: ManualClock) -> None:
    await centre.send_many(ENOUGH)
    indexer = await indexer_of(centre)
    await centre.execute("alter table search_terms rename to gone")
    with capture_logs() as logged:
        running = asyncio.create_task(indexer.run())
        await clock.wait_sleepers(1)
        assert [line["event"] for line in logged] == ["index.faulted"]
        assert await backlog(centre) == ENOUGH, "nothing of it is lost"
        await centre.execute("alter table gone rename to search_terms")
        clock.advance(1)
        await clock.wait_sleepers(1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert await backlog(centre) == 0
    assert await found(centre, list_name="ops") == ENOUGH


async def test_arrivals_continue_during_indexing(centre: Centre) -> None:
    await centre.send_many(2 * ENOUGH)
    indexer = await indexer_of(centre)
    sweeping = asyncio.create_task(indexer.sweep())
    arrived = 0
    while not sweeping.done():
        await centre.send(subject="Meanwhile")
        arrived += 1
    assert await sweeping >= 2 * ENOUGH
    assert await found(centre, subject="meanwhile") == arrived
