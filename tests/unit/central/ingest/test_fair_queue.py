"""Turns at the store and credits."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldpost.central.ingest.fair_queue import DRAINING_S, GRANT_MIN, FairQueue, Pace
from fieldpost.core.errors import Unavailable
from fieldpost.testing import ManualClock

CREDITS = 2000


async def unused(group: Sequence[str]) -> list[None]:
    raise AssertionError("these submits have transactions of their own")


async def store(
    pace: Pace[str, None], clock: ManualClock, site: str, items: int, took_s: float, *, has_more: bool = True
) -> None:
    async with pace.storing(site, items, has_more=has_more):
        clock.advance(took_s)


@pytest.mark.dec("DEC-26")
@settings(deadline=None, max_examples=40)
@given(batches=st.lists(st.integers(1, 500), min_size=2, max_size=8))
def test_every_site_gets_the_same_share_for_any_batch_size(batches: list[int]) -> None:
    """All have more than can be stored, and two submits each at central; who is a few batches ahead waits."""

    async def drain() -> Counter[str]:
        queue = FairQueue(unused, items_max=500, groups_max=1)
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


async def test_returning_site_has_accumulated_no_credit() -> None:
    queue = FairQueue(unused, items_max=10, groups_max=1)
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


async def test_store_never_gets_more_than_its_maximum_except_one_large_submit() -> None:
    queue = FairQueue(unused, items_max=100, groups_max=3)
    at_once: list[int] = []

    async def submit(site: str, items: int) -> None:
        async with queue.admit(site, items):
            at_once.append(queue.items)
            await asyncio.sleep(0)

    await asyncio.gather(*(submit(str(n), size) for n, size in enumerate([40, 40, 40, 500, 1, 1, 1, 1, 99, 30])))
    assert queue.items == 0
    assert {many for many in at_once if many > 100} == {500}


async def test_cancelled_waiter_delays_no_other() -> None:
    queue = FairQueue(unused, items_max=1, groups_max=1)
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
    pace = Pace(CREDITS, clock.monotonic, unused)
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


async def test_slow_store_grants_fewer_credits_and_never_zero() -> None:
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic, unused)
    for _ in range(50):
        await store(pace, clock, "plant-1", 100, 1.0)
    assert pace.credits() == 100
    for number in range(1000):
        await store(pace, clock, f"plant-{number}", 100, 0.001)
    assert pace.credits() >= GRANT_MIN


async def test_small_batches_do_not_keep_themselves_small() -> None:
    """A hundred sites drain; with 20 items each the store seems to take 1,500 a second."""
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic, unused)
    for number in range(300):
        await store(pace, clock, f"plant-{number % 100}", 20, 0.0133)
    assert pace.credits() == 100


async def test_items_in_flight_never_exceed_what_the_store_takes_in_ten_seconds() -> None:
    """The same hundred on a store that takes 100 a second: ten seconds' worth in all, and not a minute's."""
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic, unused)
    for number in range(1000):
        await store(pace, clock, f"plant-{number % 100}", 20, 0.02)
    assert 100 * pace.credits() <= 1000 * 10
    for _ in range(100):
        for number in range(10):
            await store(pace, clock, f"plant-{number}", 20, 0.2)
    assert 10 * pace.credits() <= 100 * 10


async def test_failing_store_grants_no_credits() -> None:
    assert Pace(CREDITS, ManualClock().monotonic, unused).credits(is_failing=True) == 0


async def test_single_items_do_not_change_the_estimate_of_the_store() -> None:
    clock = ManualClock()
    pace = Pace(CREDITS, clock.monotonic, unused)
    for _ in range(50):
        await store(pace, clock, "plant-1", 1, 0.05, has_more=False)
    assert pace.credits() == CREDITS


class Database:
    """Stores groups when told to, and notes them."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.poison: set[str] = set()
        self.outage: Unavailable | None = None
        self._commits: asyncio.Queue[None] = asyncio.Queue()

    async def store(self, group: Sequence[str]) -> list[str]:
        self.groups.append(list(group))
        await self._commits.get()
        if self.outage:
            raise self.outage
        if self.poison & set(group):
            raise ValueError("cannot be stored")
        return [f"{name} is stored" for name in group]

    async def commit(self, count: int = 1) -> None:
        for _ in range(count):
            self._commits.put_nowait(None)
        await turns()


async def turns(count: int = 30) -> None:
    """Let the event loop run all that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


async def submit_each(queue: FairQueue[str, str], names: str, items: int = 1) -> list[asyncio.Task[str]]:
    """Submits that arrive one after the other."""
    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(queue.submit(name, items, name)))
        await turns()
    return tasks


async def test_submits_that_arrive_together_share_the_first_transaction() -> None:
    database = Database()
    queue = FairQueue(database.store)
    tasks = [asyncio.create_task(queue.submit(name, 1, name)) for name in "abc"]
    await turns()
    assert database.groups == [["a", "b", "c"]]
    await database.commit()
    assert [task.result() for task in tasks] == [f"{name} is stored" for name in "abc"]


async def test_submit_starts_at_once_and_waiting_ones_share_a_transaction() -> None:
    database = Database()
    queue = FairQueue(database.store)
    tasks = await submit_each(queue, "abcdef")
    assert database.groups == [["a"], ["b"]]
    await database.commit()
    assert database.groups == [["a"], ["b"], ["c", "d", "e", "f"]]
    await database.commit(2)
    assert [task.result() for task in tasks] == [f"{name} is stored" for name in "abcdef"]
    assert queue.items == 0


async def test_large_submits_do_not_wait_for_others_and_share_no_transaction() -> None:
    database = Database()
    queue = FairQueue(database.store)
    tasks = await submit_each(queue, "abcd", items=400)
    await database.commit(4)
    assert database.groups == [["a"], ["b"], ["c"], ["d"]]
    assert all(task.done() for task in tasks)


async def test_a_submit_that_cannot_be_stored_fails_alone() -> None:
    database = Database()
    queue = FairQueue(database.store, groups_max=1)
    database.poison = {"c"}
    tasks = await submit_each(queue, "abcd")
    await database.commit(5)
    assert database.groups == [["a"], ["b", "c", "d"], ["b"], ["c"], ["d"]]
    assert [str(task.exception()) for task in tasks if task.exception()] == ["cannot be stored"]
    assert [task.result() for task in tasks if not task.exception()] == [f"{name} is stored" for name in "abd"]


async def test_an_unavailable_store_is_not_asked_again_for_each_submit() -> None:
    database = Database()
    queue = FairQueue(database.store, groups_max=1)
    database.outage = Unavailable("store.unavailable", "the disk is full")
    tasks = await submit_each(queue, "abc")
    await database.commit(2)
    assert database.groups == [["a"], ["b", "c"]]
    assert [type(task.exception()) for task in tasks] == [Unavailable] * 3


async def test_a_cancelled_submit_is_withdrawn_while_it_waits_and_fails_no_other() -> None:
    database = Database()
    queue = FairQueue(database.store, groups_max=1)
    tasks = await submit_each(queue, "abcd")
    tasks[0].cancel()
    tasks[2].cancel()
    await database.commit(2)
    assert database.groups == [["a"], ["b", "d"]], "the transaction of the first had started"
    assert [task.result() for task in tasks if not task.cancelled()] == ["b is stored", "d is stored"]
    assert queue.items == 0


@pytest.mark.dec("DEC-26")
async def test_a_group_is_filled_in_fair_order() -> None:
    """A site with many waiting submits does not fill the transaction before another site's first."""
    database = Database()
    queue = FairQueue(database.store, items_max=20, groups_max=1)
    tasks = [asyncio.create_task(queue.submit("busy", 5, f"busy {n}")) for n in range(9)]
    await turns()
    assert database.groups == [["busy 0", "busy 1", "busy 2", "busy 3"]]
    tasks.append(asyncio.create_task(queue.submit("other", 5, "other")))
    await turns()
    await database.commit()
    assert database.groups[1] == ["other", "busy 4", "busy 5", "busy 6"]
    await database.commit(5)
    await asyncio.gather(*tasks)
