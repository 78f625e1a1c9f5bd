"""The control connection: the sender's client against central as it is served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.front.rooms import Rooms
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Hello, Message, Refusal
from support.front import Front, served


async def heard_nothing(message: Message) -> Message | None:
    raise AssertionError(message)


@asynccontextmanager
async def running(client: ControlClient) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    task = asyncio.create_task(client.run(stopping))
    try:
        yield
    finally:
        stopping.set()
        async with asyncio.timeout(10):
            await task


async def until(condition: object) -> None:
    async with asyncio.timeout(10):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


async def test_a_control_connection_is_known_by_its_site_for_as_long_as_it_lasts(front: Front) -> None:
    rooms: Rooms = front.app.state.rooms
    async with served(front.app) as url:
        client = ControlClient(lambda: Endpoint(url, front.tokens["site"]), heard_nothing, SystemClock(), Random(1))
        assert not client.is_connected
        with pytest.raises(Unavailable, match="no control connection"):
            await client.send(Hello(1, "x"))
        async with running(client):
            await until(lambda: client.is_connected and rooms.links.of("plant-7"))
            assert rooms.links.sites == ["plant-7"]
            link = rooms.links.of("plant-7")
            assert link is not None
            assert client.greeting is not None
        await until(lambda: rooms.links.of("plant-7") is None)
        assert not client.is_connected
        with pytest.raises(Unavailable, match="not connected"):
            await link.send(Refusal("x", "y"))
