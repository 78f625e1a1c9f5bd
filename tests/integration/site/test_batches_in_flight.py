"""Several batches on their way at a time: from a real buffer, to a carrier whose answers the test gives."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

from fieldpost import Site
from fieldpost.core.errors import Unavailable
from fieldpost.core.sites.forwarding import CarrierAnswer, NotNow, Taken
from fieldpost.core.sites.message import Category, Message
from fieldpost.link.session import Room
from fieldpost.site.buffer.rows import Outgoing
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder, Swept
from fieldpost.testing import ManualClock
from support.site_folders import make_site

DEPTH = 3
BATCH = 10


class HeldCarrier:
    """Takes batches and answers each when it is told to."""

    category = Category.NOTIFICATION
    may_go_on = True

    def __init__(self) -> None:
        self.under_way: list[tuple[list[str], asyncio.Future[CarrierAnswer | Exception]]] = []
        self.carried: list[str] = []
        self._news = asyncio.Condition()

    def room(self) -> Room:
        return Room(BATCH if len(self.under_way) < DEPTH else 0, 1_000_000)

    async def carry(self, messages: Sequence[Outgoing]) -> Sequence[CarrierAnswer]:
        ids = [message.message_id for message in messages]
        answer: asyncio.Future[CarrierAnswer | Exception] = asyncio.get_running_loop().create_future()
        self.under_way.append((ids, answer))
        self.carried += ids
        async with self._news:
            self._news.notify_all()
        given = await answer
        self.under_way.remove((ids, answer))
        if isinstance(given, Exception):
            raise given
        return [given] * len(messages)

    async def until(self, count: int) -> None:
        """Return once so many batches are under way."""
        async with asyncio.timeout(20), self._news:
            await self._news.wait_for(lambda: len(self.under_way) == count)

    async def is_asked(self, sweeping: "asyncio.Task[Swept]") -> bool:
        """Return once a batch is under way; False when the sweep has come to its end instead."""
        async with asyncio.timeout(20):
            while not self.under_way and not sweeping.done():
                await asyncio.sleep(0.005)
        return not sweeping.done()

    def answer(self, place: int, answer: CarrierAnswer | Exception) -> list[str]:
        ids, future = self.under_way[place]
        future.set_result(answer)
        return ids

    async def close(self) -> None:
        return


@pytest.fixture
def carrier() -> HeldCarrier:
    return HeldCarrier()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path / "site")


@pytest.fixture
async def forwarder(site: Site, carrier: HeldCarrier) -> AsyncIterator[Forwarder]:
    forwarder = Forwarder(site._buffer, carrier, ForwardOptions(), ManualClock(), Random(1))
    yield forwarder
    await forwarder.close()


def send(site: Site, count: int) -> list[str]:
    return [site.notify.to("ops").send(f"n{number}", "b") for number in range(count)]


def left(site: Site) -> int:
    return site._buffer.depth().waiting.get(Category.NOTIFICATION, 0)


async def begin(forwarder: Forwarder, carrier: HeldCarrier) -> "asyncio.Task[Swept]":
    """A sweep whose first batch was taken, and which has as many more under way as there is room for."""
    sweeping = asyncio.create_task(forwarder.sweep())
    await carrier.until(1)
    carrier.answer(0, Taken())
    await carrier.until(DEPTH)
    return sweeping


async def test_several_batches_are_in_flight_oldest_first_and_none_twice(
    site: Site, carrier: HeldCarrier, forwarder: Forwarder
) -> None:
    ids = send(site, 6 * BATCH + 3)
    sweeping = await begin(forwarder, carrier)
    assert carrier.carried == ids[: 4 * BATCH]
    while await carrier.is_asked(sweeping):
        # The newest answer first: what is settled is what was answered, in whatever order.
        before = left(site)
        answered = carrier.answer(-1, Taken())
        async with asyncio.timeout(20):
            while left(site) == before:
                await asyncio.sleep(0.005)
        assert left(site) == before - len(answered)
    swept = await sweeping
    assert (swept.cleared, swept.error, left(site)) == (len(ids), None, 0)
    assert carrier.carried == ids


async def test_a_link_that_is_down_costs_one_batch_and_writes_nothing(
    site: Site, carrier: HeldCarrier, forwarder: Forwarder
) -> None:
    ids = send(site, 5 * BATCH)
    sweeping = asyncio.create_task(forwarder.sweep())
    await carrier.until(1)
    carrier.answer(0, Unavailable("link.unreachable", "nobody there"))
    swept = await sweeping
    assert (swept.cleared, swept.kept, swept.error) == (0, 0, "nobody there")
    assert carrier.carried == ids[:BATCH]
    message = site._buffer.find(ids[0])
    assert isinstance(message, Message)
    assert message.retry_count == 0


async def test_broken_link_settles_answered_batches_and_keeps_the_rest(
    site: Site, carrier: HeldCarrier, forwarder: Forwarder
) -> None:
    ids = send(site, 6 * BATCH)
    sweeping = await begin(forwarder, carrier)
    carrier.answer(0, Unavailable("link.unreachable", "gone"))
    carrier.answer(1, NotNow("lost"))
    carrier.answer(2, Taken())
    swept = await sweeping
    assert swept.error == "gone"
    assert carrier.carried == ids[: 4 * BATCH], "nothing more was taken after that"
    assert left(site) == len(ids) - 2 * BATCH
    kept = [site._buffer.find(notification_id) for notification_id in ids[BATCH : 3 * BATCH]]
    assert [message.retry_count for message in kept if isinstance(message, Message)] == [0] * BATCH + [1] * BATCH


async def test_cancelled_sweep_keeps_batches_in_flight_in_the_buffer(
    site: Site, carrier: HeldCarrier, forwarder: Forwarder
) -> None:
    send(site, 5 * BATCH)
    sweeping = await begin(forwarder, carrier)
    sweeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweeping
    assert left(site) == 4 * BATCH
