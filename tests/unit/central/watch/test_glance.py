"""A look that many share."""

import asyncio

import pytest

from fieldpost.central.watch.shared_read import FRESH_S, REST, SharedRead
from fieldpost.testing import ManualClock


class Looking:
    """Counts how often it is looked, and takes its time."""

    def __init__(self, clock: ManualClock, takes_s: float = 0.0) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.count = 0

    async def __call__(self) -> int:
        self.clock.advance(self.takes_s)
        self.count += 1
        await asyncio.sleep(0)
        return self.count


async def test_quick_read_is_cached_for_a_second() -> None:
    clock = ManualClock()
    glance = SharedRead(Looking(clock), clock)
    assert [await glance.get(), await glance.get()] == [1, 1]
    clock.advance(FRESH_S)
    assert await glance.get() == 2


async def test_rarely_changing_read_is_cached_for_its_own_time() -> None:
    clock = ManualClock()
    glance = SharedRead(Looking(clock), clock, fresh_s=10)
    assert await glance.get() == 1
    clock.advance(9.999)
    assert await glance.get() == 1
    clock.advance(0.001)
    assert await glance.get() == 2


async def test_slow_read_is_cached_for_a_multiple_of_its_duration() -> None:
    clock = ManualClock()
    glance = SharedRead(Looking(clock, takes_s=2), clock)
    assert await glance.get() == 1
    clock.advance(2 * REST - 0.001)
    assert await glance.get() == 1
    clock.advance(0.001)
    assert await glance.get() == 2


async def test_concurrent_callers_share_one_read() -> None:
    clock = ManualClock()
    looking = Looking(clock)
    glance = SharedRead(looking, clock)
    assert await asyncio.gather(*(glance.get() for _ in range(20))) == [1] * 20
    assert looking.count == 1


async def test_failed_read_is_not_cached() -> None:
    clock = ManualClock()
    answers = iter([ValueError("no"), 7])

    async def look() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    glance = SharedRead(look, clock)
    with pytest.raises(ValueError, match="no"):
        await glance.get()
    assert await glance.get() == 7
