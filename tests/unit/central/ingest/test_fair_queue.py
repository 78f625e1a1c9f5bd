"""Turns at the store and credits."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldpost.central.ingest.fair_queue import DRAINING_S, GRANT_MIN, FairQueue, Pace
from fieldpost.testing import ManualClock

CREDITS = 2000


async def store(pace: Pace, clock: ManualClock, site: str, items: int, took_s: float, *, has_more: bool = True) -> None:
    async with pace.storing(site, items, has_more=has_more):
        clock.advance(took_s)


@pytest.mark.dec("DEC-26")
@settings(deadline=None, max_examples=40)
@given(batches=st.lists(st.integers(1, 500), min_size=2, max_size=8))
def test_every_site_gets_the_same_whatever_the_size_of_its_batches(batches: list[int]) -> None:
    """All have more than can be stored, and two submits each at central; who is a few batches ahead waits."""

    async def drain() -> Counter[str]:
        queue = FairQueue(items_max=500, submits_max=1)
        stored: Counter[str] = Counter()

        async def site(name: str, batch: int) -> None:
            while True:
                async with queue.admit(name, batch):
                    stored[name] += batch
                    await asyncio.sleep(0)

        running = [asyncio.create_task(site(str(n), batch)) for n, batch in enumerate(batches) for _ in range(2)]
        while stored.total() < 30 * max(batches) * len(batches):
            await asyncio.sleep(0)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return stored

    stored = asyncio.run(drain())
    assert max(stored.values()) - min(stored.values()) <= 4 * max(batches)


async def test_a_site_that_was_away_has_saved_up_nothing() -> None:
    queue = FairQueue(items_max=10, submits_max=1)
    order: list[str] = []

    async def submit(site: str) -> None:
        async with queue.admit(site, 10):
            order.append(site)
            await asyncio.sleep(0)

    async def busy() -> None:
        for _ in range(20):
            await submit("busy")

    async with asyncio.TaskGroup() as group:
        group.create_task(busy())
        while len(order) < 10:
            await asyncio.sleep(0)
        for _ in range(6):
            group.create_task(submit("late"))
        for _ in range(6):
            group.create_task(submit("later"))
    after = order[10:]
    assert after[:2].count("late") + after[:2].count("later") >= 1, "it does not wait behind what came before it"
    assert "busy" in after[:4], "nor does it go before all the others"


async def test_the_store_is_never_given_more_at_once_and_one_large_submit_still_passes() -> None:
    queue = FairQueue(items_max=100, submits_max=3)
    at_once: list[int] = []

    async def submit(site: str, items: int) -> None:
        async with queue.admit(site, items):
            at_once.append(queue.items)
            await asyncio.sleep(0)

    await asyncio.gather(*(submit(str(n), size) for n, size in enumerate([40, 40, 40, 500, 1, 1, 1, 1, 99, 30])))
    assert queue.items == 0
    assert {many for many in at_once if many > 100} == {500}


async def test_whoever_gives_up_waiting_holds_up_nobody() -> None:
    queue = FairQueue(items_max=1, submits_max=1)
    release = asyncio.Event()

    async def hold() -> None:
        async with queue.admit("a", 1):
            await release.wait()

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(hold()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    release.set()
    await holding
    # The next one is called in this moment, and gives up in the same.
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert waiting[2].done()
    assert queue.items == 0


@pytest.mark.dec("DEC-26")
async def test_credits_are_what_can_be_stored_divided_by_the_sites_that_drain() -> None:
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic)
    assert pace.credits() == CREDITS, "nothing is known yet"
    await store(pace, clock, "plant-1", 500, 0.1)
    assert pace.credits() == CREDITS, "alone, at 5,000 a second"
    for number in range(20):
        await store(pace, clock, f"plant-{number}", 500, 0.1)
    assert pace.credits() == pytest.approx(5000 / 20, abs=1)
    await store(pace, clock, "plant-7", 500, 0.1, has_more=False)
    assert pace.credits() == pytest.approx(5000 / 19, abs=1), "that one has said that it is done"
    clock.advance(DRAINING_S + 1)
    assert pace.credits() == CREDITS, "the others are silent"


async def test_a_slow_store_grants_less_and_never_nothing() -> None:
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic)
    for _ in range(50):
        await store(pace, clock, "plant-1", 100, 1.0)
    assert pace.credits() == 100
    for number in range(1000):
        await store(pace, clock, f"plant-{number}", 100, 0.001)
    assert pace.credits() >= GRANT_MIN


async def test_small_batches_do_not_keep_themselves_small() -> None:
    """A hundred sites drain; with 20 items each the store seems to take 1,500 a second."""
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic)
    for number in range(300):
        await store(pace, clock, f"plant-{number % 100}", 20, 0.0133)
    assert pace.credits() == 100


async def test_what_is_on_the_way_is_never_more_than_a_sender_waits_for() -> None:
    """The same hundred on a store that takes 100 a second: ten seconds' worth in all, and not a minute's."""
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic)
    for number in range(1000):
        await store(pace, clock, f"plant-{number % 100}", 20, 0.02)
    assert 100 * pace.credits() <= 1000 * 10
    for _ in range(100):
        for number in range(10):
            await store(pace, clock, f"plant-{number}", 20, 0.2)
    assert 10 * pace.credits() <= 100 * 10


async def test_a_failing_store_grants_nothing() -> None:
    assert Pace(CREDITS, ManualClock().monotonic).credits(is_failing=True) == 0


async def test_single_items_say_nothing_about_what_the_store_can_take() -> None:
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic)
    for _ in range(50):
        await store(pace, clock, "plant-1", 1, 0.05, has_more=False)
    assert pace.credits() == CREDITS
