"""Open connections of a site whose token is revoked, replaced or expired."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from fieldpost.central.store.accounts import identities
from fieldpost.core.errors import Unavailable
from fieldpost.link import credentials
from fieldpost.link.codec import encode
from fieldpost.link.messages import Command, Hello
from support.centre import SITE
from support.front import ADMIN
from support.line import DEADLINE_S, Line, receive
from support.running_central import until

pytestmark = [pytest.mark.threat(36), pytest.mark.req("DEC-33")]


@asynccontextmanager
async def control(line: Line, token: str) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with line.http.ws_connect("/link/v1/control", headers=headers) as websocket:
        assert isinstance(await receive(websocket), Hello)
        await websocket.send_bytes(encode(Hello(1, "test")))
        yield websocket


async def ended(websocket: Any) -> int | None:
    """The close code, skipping what was sent before."""
    async with asyncio.timeout(DEADLINE_S):
        while (message := await websocket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass
    assert message.type is aiohttp.WSMsgType.CLOSE, message
    return None if websocket.close_code is None else int(websocket.close_code)


async def test_revoking_a_site_closes_its_silent_connections_at_once_and_no_others(line: Line) -> None:
    other = (await line.front.operate.sites.add(ADMIN, "plant-8")).token
    async with line.websocket() as data, control(line, line.token) as commands, line.websocket(other) as theirs:
        async with asyncio.timeout(3):
            await line.front.operate.sites.revoke(ADMIN, SITE)
            assert [await ended(data), await ended(commands)] == [1008, 1008]
        assert not theirs.closed
        connections = line.front.commands.connections
        await until(lambda: connections.of(SITE) is None, 5, "the control connection to end")
    line.token = other


async def test_connections_with_a_replaced_token_are_closed_when_it_expires(line: Line) -> None:
    old = line.token
    line.token = (await line.front.operate.sites.rotate_token(ADMIN, SITE, timedelta(minutes=5))).token
    async with line.websocket(old) as data, control(line, old) as commands, control(line, line.token) as kept:
        open_links = line.front.app.state.backend.open_links
        await open_links.sweep()
        assert not data.closed
        line.front.clock.advance(301)
        await open_links.sweep()
        assert [await ended(data), await ended(commands)] == [1008, 1008]
        assert not kept.closed


async def test_a_command_is_not_sent_to_a_token_that_was_revoked_just_now(line: Line) -> None:
    """Even if nothing has closed the connection yet, as between the commit and the wake-up on another node."""
    connections = line.front.commands.connections
    async with control(line, line.token) as websocket:
        await until(lambda: connections.of(SITE) is not None, 5, "the site to connect")
        link = connections.of(SITE)
        assert link is not None
        await link.send(Command("1", "retry", {}, "admin"))
        assert isinstance(await receive(websocket), Command)
        prefix = credentials.prefix_of(line.token, "site")
        assert prefix is not None
        assert await line.front.centre.store.write(identities.revoke_token, "site", prefix, line.front.clock.now())
        with pytest.raises(Unavailable, match=f"the token of site {SITE} is no longer valid"):
            await link.send(Command("2", "retry", {}, "admin"))
        async with asyncio.timeout(DEADLINE_S):
            message = await websocket.receive()
        assert (message.type, websocket.close_code) == (aiohttp.WSMsgType.CLOSE, 1008)
        assert connections.of(SITE) is None
    line.token = (await line.front.operate.sites.add(ADMIN, "plant-8")).token
