"""The change_feed: pages that listen are told where something changed, by one look for all of them."""

import asyncio

import pytest

from fieldpost.core.errors import Unavailable
from fieldpost.front import change_feed as beats
from fieldpost.front.change_feed import LISTENERS_MAX, ChangeFeed


class Store:
    """What is looked at: a mark for each topic, and how often anybody looked."""

    def __init__(self) -> None:
        self.marks = {"notifications": "1", "sites": "1"}
        self.looks = 0
        self.looked = asyncio.Event()
        self.is_away = False

    async def look(self) -> dict[str, str]:
        self.looks += 1
        self.looked.set()
        if self.is_away:
            raise Unavailable("store.away", "the store is away")
        return dict(self.marks)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "INTERVAL_S", 0.01)


async def test_each_listener_gets_the_changed_topics_from_one_shared_query() -> None:
    store = Store()
    change_feed = ChangeFeed(store.look)
    listening = [change_feed.changes() for _ in range(20)]
    assert await asyncio.gather(*(anext(one) for one in listening)) == [frozenset()] * 20, "what they begin from"
    before = store.looks
    store.marks["sites"] = "2"
    assert await asyncio.gather(*(anext(one) for one in listening)) == [frozenset({"sites"})] * 20
    assert store.looks - before < 10
    for one in listening:
        await one.aclose()


async def test_store_is_not_queried_without_listeners() -> None:
    store = Store()
    change_feed = ChangeFeed(store.look)
    listening = change_feed.changes()
    await anext(listening)
    await listening.aclose()
    store.looked.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.looked.wait()
    store.marks["sites"] = "2"
    again = change_feed.changes()
    assert await anext(again) == frozenset(), "what changed while nobody listened is in the page already"
    await again.aclose()


@pytest.mark.parametrize("has_another_listener", [False, True])
async def test_change_between_rendering_and_listening_reaches_the_page(has_another_listener: bool) -> None:
    store = Store()
    change_feed = ChangeFeed(store.look)
    other = change_feed.changes()
    if has_another_listener:
        await anext(other)
    rendered = await change_feed.tokens()
    store.marks["sites"] = "2"
    if has_another_listener:
        assert await anext(other) == {"sites"}
    listening = change_feed.changes(rendered)
    assert await anext(listening) == {"sites"}
    unchanged = change_feed.changes(await change_feed.tokens())
    assert await anext(unchanged) == frozenset()
    for one in (other, listening, unchanged):
        await one.aclose()


async def test_unavailable_store_ends_no_listening() -> None:
    store = Store()
    change_feed = ChangeFeed(store.look)
    listening = change_feed.changes()
    await anext(listening)
    store.is_away = True
    store.looked.clear()
    await store.looked.wait()
    store.marks["notifications"], store.is_away = "2", False
    assert await anext(listening) == {"notifications"}
    await listening.aclose()


async def test_stopping_node_ends_its_listeners() -> None:
    change_feed = ChangeFeed(Store().look)

    async def listen() -> int:
        return len([beat async for beat in change_feed.changes()])

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    change_feed.close()
    async with asyncio.timeout(20):
        assert await listening <= 2


async def test_number_of_listeners_is_limited() -> None:
    change_feed = ChangeFeed(Store().look)
    listening = [change_feed.changes() for _ in range(LISTENERS_MAX)]
    change_feed.check_room()
    await asyncio.gather(*(anext(one) for one in listening))
    with pytest.raises(Unavailable, match=f"{LISTENERS_MAX} pages are already listening"):
        change_feed.check_room()
    for one in listening:
        await one.aclose()
    change_feed.check_room()
