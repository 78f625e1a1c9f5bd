import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fieldpost.clock import Clock
from fieldpost.testing import ManualClock


async def test_time_does_not_pass_until_it_is_advanced() -> None:
    manual = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    clock: Clock = manual
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 3, 1, tzinfo=UTC), 0)
    manual.advance(90)
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 3, 1, 0, 1, 30, tzinfo=UTC), 90)


def test_start_in_another_zone_is_converted_to_utc() -> None:
    clock = ManualClock(datetime(2026, 3, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now().utcoffset() == timedelta(0)
    assert clock.now() == datetime(2026, 3, 1, tzinfo=UTC)


def test_start_without_time_zone_is_rejected() -> None:
    with pytest.raises(ValueError, match="aware"):
        ManualClock(datetime(2026, 3, 1))  # noqa: DTZ001


def test_a_step_moves_the_wall_clock_alone() -> None:
    clock = ManualClock()
    before = clock.now()
    clock.step(-3600)
    assert clock.now() == before - timedelta(hours=1)
    assert clock.monotonic() == 0


def test_time_cannot_be_advanced_backwards() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        ManualClock().advance(-1)


async def test_sleepers_wake_in_order_of_their_due_times() -> None:
    clock = ManualClock()
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as tasks:
        for seconds in (30, 10, 20, 40):
            tasks.create_task(sleep(seconds))
        await clock.wait_sleepers(4)
        assert clock.next_wake_in_s() == 10
        clock.advance(30)
        assert clock.sleeping == 1
        clock.advance(10)
    assert woken == [10, 20, 30, 40]
    assert clock.next_wake_in_s() is None


async def test_a_sleeper_does_not_wake_before_its_time_nor_by_a_step() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.wait_sleepers()
    clock.step(3600)
    clock.advance(9.999999)
    assert clock.sleeping == 1
    clock.advance(0.000001)
    await sleeper


async def test_ten_steps_of_a_tenth_make_a_second() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    await clock.wait_sleepers()
    for _ in range(10):
        clock.advance(0.1)
    await sleeper
    assert clock.monotonic() == 1


async def test_a_cancelled_sleeper_is_no_longer_counted() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.wait_sleepers()
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert clock.sleeping == 0
    clock.advance(10)


async def test_advance_by_zero_lets_others_run() -> None:
    clock = ManualClock()
    ran: list[float] = []
    for seconds in (0, -1):
        asyncio.get_running_loop().call_soon(ran.append, seconds)
        await clock.sleep(seconds)
    assert ran == [0, -1]


async def test_waiting_for_sleepers_returns_their_number() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    with pytest.raises(TimeoutError, match="2 sleeping tasks; 1 sleep"):
        await clock.wait_sleepers(2, timeout_s=0.01)
    sleeper.cancel()


async def test_another_thread_may_advance_the_clock() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(5))
    await clock.wait_sleepers()
    thread = threading.Thread(target=clock.advance, args=(5,))
    thread.start()
    await sleeper
    thread.join()
