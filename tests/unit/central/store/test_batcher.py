import asyncio
from collections.abc import Sequence

import pytest

from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.core.errors import InvalidInput, Unavailable


class Desk:
    """Doubles numbers, one set at a time, each when it is let go; some cannot be doubled."""

    def __init__(self, *, held: bool = False) -> None:
        self.sets: list[list[int]] = []
        self.go = asyncio.Event()
        if not held:
            self.go.set()

    async def double(self, numbers: Sequence[int]) -> Sequence[int]:
        self.sets.append(list(numbers))
        await self.go.wait()
        if 13 in numbers:
            raise InvalidInput("number.bad", "13 cannot be doubled")
        if 99 in numbers:
            raise Unavailable("desk.closed", "the desk is closed")
        return [2 * number for number in numbers]


async def test_single_submit_runs_at_once() -> None:
    desk = Desk()
    assert await Batcher(desk.double).submit(4) == 8
    assert desk.sets == [[4]]


async def test_submits_during_a_batch_share_the_next_and_each_gets_its_own_result() -> None:
    desk = Desk(held=True)
    together = Batcher(desk.double, set_max=3)
    asked = [asyncio.create_task(together.submit(number)) for number in range(1)]
    while not desk.sets:
        await asyncio.sleep(0)
    asked += [asyncio.create_task(together.submit(number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    desk.go.set()
    assert await asyncio.gather(*asked) == [0, 2, 4, 6, 8, 10]
    assert desk.sets == [[0], [1, 2, 3], [4, 5]]


async def test_invalid_item_of_a_batch_fails_alone() -> None:
    desk = Desk()
    together = Batcher(desk.double)
    good, bad, other = await asyncio.gather(*map(together.submit, (1, 13, 3)), return_exceptions=True)
    assert (good, other) == (2, 6)
    assert isinstance(bad, InvalidInput)


async def test_store_failure_is_raised_to_all_after_one_attempt() -> None:
    desk = Desk()
    together = Batcher(desk.double)
    heard = await asyncio.gather(*map(together.submit, (1, 99, 3)), return_exceptions=True)
    assert [type(error) for error in heard] == [Unavailable] * 3
    assert desk.sets == [[1, 99, 3]]
    assert await together.submit(5) == 10


async def test_cancelled_submit_is_left_out_of_the_batch() -> None:
    desk = Desk(held=True)
    together = Batcher(desk.double)
    first = asyncio.create_task(together.submit(1))
    while not desk.sets:
        await asyncio.sleep(0)
    gone, second = asyncio.create_task(together.submit(2)), asyncio.create_task(together.submit(3))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    desk.go.set()
    assert await asyncio.gather(first, second) == [2, 6]
    assert desk.sets == [[1], [3]]
