"""One node leads, and another as soon as it no longer does."""

import asyncio
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.central.upkeep.leader import Leader
from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre
from support.postgres import PostgresServer


def leader(centre: Centre, node_id: str) -> Leader:
    return Leader(centre.store, node_id, centre.clock)


@pytest.mark.req("DEC-06")
async def test_one_of_two_nodes_leads_and_keeps_leading(centre: Centre, clock: ManualClock) -> None:
    a, b = leader(centre, "a"), leader(centre, "b")
    for _ in range(10):
        assert (await a.campaign(), await b.campaign()) == (True, False)
        assert (a.is_leader, b.is_leader) == (True, False)
        clock.advance(5)


@pytest.mark.req("DEC-06")
async def test_lead_moves_within_half_a_minute_after_the_leader_vanished(centre: Centre, clock: ManualClock) -> None:
    assert await leader(centre, "gone").campaign()
    heir = leader(centre, "heir")
    running = asyncio.create_task(heir.run())
    waited = 0
    while not heir.is_leader:
        await clock.wait_sleepers(1)
        clock.advance(5)
        waited += 5
        await asyncio.sleep(0)
        await clock.wait_sleepers(1)
    assert waited <= 30
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.req("DEC-04", "DEC-06")
async def test_frozen_leader_no_longer_leads_when_it_resumes(centre: Centre, clock: ManualClock) -> None:
    """By its own monotonic clock, before it has asked anybody."""
    frozen, other = leader(centre, "frozen"), leader(centre, "other")
    assert await frozen.campaign()
    clock.advance(14.9)
    assert frozen.is_leader
    clock.advance(0.1)
    assert not frozen.is_leader
    assert await other.campaign()
    with capture_logs() as logs:
        assert not await frozen.campaign()
    assert [line["event"] for line in logs] == ["leader.lost"]


async def test_leader_that_resigns_is_replaced_at_once(centre: Centre) -> None:
    a, b = leader(centre, "a"), leader(centre, "b")
    assert await a.campaign()
    await a.resign()
    assert not a.is_leader
    assert await b.campaign()


async def test_node_waiting_to_lead_is_woken_by_the_election(centre: Centre) -> None:
    a = leader(centre, "a")
    waiting = asyncio.create_task(a.elected())
    await asyncio.sleep(0)
    assert not waiting.done()
    await a.campaign()
    async with asyncio.timeout(20):
        await waiting


async def test_a_store_that_fails_ends_the_lead_but_not_the_loop(pg_server: PostgresServer, clock: ManualClock) -> None:
    """A real server that is stopped and started again: the node stops leading in time and leads again afterwards."""
    await upgrade_async(pg_server.url())
    async with open_centre(pg_server.url(), clock) as centre:
        a = leader(centre, "a")
        running = asyncio.create_task(a.run())
        await a.elected()
        await clock.wait_sleepers(1)
        await asyncio.to_thread(pg_server.stop)
        clock.advance(15)
        assert not a.is_leader
        await clock.wait_sleepers(1, timeout_s=30)
        await asyncio.to_thread(pg_server.start)
        clock.advance(5)
        async with asyncio.timeout(30):
            await a.elected()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
