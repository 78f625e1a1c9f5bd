"""Operators, purge and dispatchers want the same rows at the same time: each row goes to one, the others are told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre
from support.contested_rows import check, contend, ids, park_many, purge_of


@pytest.fixture
async def centres(store_url: str, clock: ManualClock) -> AsyncIterator[list[Centre]]:
    """Two nodes' worth of store on PostgreSQL; the embedded one has one process, and with it one store."""
    async with AsyncExitStack() as stack:
        count = 2 if store_url.startswith("postgresql") else 1
        opened = [await stack.enter_async_context(open_centre(store_url, clock)) for _ in range(count)]
        await opened[0].add_channel()
        await opened[0].add_list()
        for other in opened[1:]:
            other.adapter = opened[0].adapter
            other.adapters = opened[0].adapters
        yield opened


@pytest.mark.fault(57)
@pytest.mark.req("CMD-04", "CMD-05", "DEC-03", "DEC-15")
async def test_one_of_concurrent_retries_and_discards_wins_during_sweeps(centres: list[Centre]) -> None:
    """Rounds on a row each, while dispatchers take up what was retried; tests/chaos has a thousand on one row."""
    rows = await park_many(centres[0], 300)
    nodes = [centre.dispatcher(f"node-{number}", slots=200, slots_per_key=200) for number, centre in enumerate(centres)]
    running = [asyncio.create_task(node.run()) for node in nodes]
    result = await contend(centres, rows)
    for node in nodes:
        node.stop()
    await asyncio.gather(*running)
    await centres[0].deliver(slots=200, slots_per_key=200)
    assert {verb for won in result.won.values() for verb in won} == {"retry", "discard"}, "each wins sometimes"
    assert sum(result.refused.values()) == len(rows) * (2 * len(centres) - 1)
    assert set(result.refused) <= {"notification.changed", "notification.not_parked"}
    await check(centres[0], result, set())


@pytest.mark.fault(56, 57)
@pytest.mark.req("CFG-01", "DEC-03", "DEC-15", "DEC-18")
async def test_retry_discard_purge_and_sweep_of_the_same_rows_lose_nothing(
    centres: list[Centre],
) -> None:
    rows = await park_many(centres[0], 400)
    purge = await purge_of(centres[-1], purge_batch=10)
    nodes = [centre.dispatcher(f"node-{number}", slots=200, slots_per_key=200) for number, centre in enumerate(centres)]
    running = [asyncio.create_task(node.run()) for node in nodes]
    # The purge begins with the oldest; where all are as old it goes by how they lie, and people come from the end.
    purging = asyncio.create_task(purge.sweep())
    result = await contend(centres, rows[::-1])
    assert await purging
    for node in nodes:
        node.stop()
    await asyncio.gather(*running)
    await centres[0].deliver(slots=200, slots_per_key=200)
    left, buried = await ids(centres[0], "notifications"), await ids(centres[0], "tombstones")
    assert left | buried == {n.notification_id for n in rows}, "nothing vanishes"
    assert left & buried == set()
    assert buried, "the purge wins sometimes"
    assert left, "operators win sometimes"
    assert set(result.refused) <= {"notification.changed", "notification.not_parked", "notification.unknown"}
    await check(centres[0], result, buried)
