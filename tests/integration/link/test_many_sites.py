"""A central that may have fewer connections than its sites want."""

import asyncio
import os
from pathlib import Path

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.core.ids import new_id
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import ACCEPTED, Ack, Item
from fieldpost.link.session import LinkSession
from support.running_central import RunningCentral, call

DEADLINE_S = 60.0
SITES = 20
FEW_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "


async def add_sites(central: RunningCentral, count: int) -> list[str]:
    token = (central.folder / "api-token").read_text().strip()
    return [(await call(central, token, "POST", "sites", {"name": f"site-{n}"}))["token"] for n in range(count)]


@pytest.mark.timeout(120)
@pytest.mark.fault(60)
async def test_with_sixty_four_files_sites_take_turns_and_none_loses_anything(pg_url: str, tmp_path: Path) -> None:
    """Each has its connection to itself until it has sent all it had; the others hear that central is busy."""
    async with RunningCentral(pg_url, tmp_path / "central", first=FEW_FILES) as central:
        tokens = await add_sites(central, SITES)
        heard: set[str] = set()
        gate = asyncio.Event()
        sent = await asyncio.gather(*(send_all(central.url, token, heard, gate) for token in tokens))
        assert heard == {"link.busy"}, "whoever is turned away hears why"
        api_token = (central.folder / "api-token").read_text().strip()
        seen = await call(central, api_token, "GET", "notifications?limit=200")
        stored = {row["notification_id"] for row in seen["notifications"]}
        assert stored == {item.notification_id for items in sent for item in items}
        assert central.surprises() == []
        assert central.events("connections.too_few") == [], "at its start it had no sites"
        await central.stop()
        await central.start()
        (told,) = central.events("connections.too_few")
        assert (told["sites"], told["needed"], told["connections_max"]) == (SITES, 2 * SITES, 16)


async def send_all(url: str, token: str, heard: set[str], gate: asyncio.Event) -> list[Item]:
    """Send four, over a connection that is given up only after somebody was turned away."""
    clock = SystemClock()
    session = LinkSession()
    client = LinkClient(lambda: Endpoint(url, token), session, clock)
    items = [Item(new_id(clock.now(), os.urandom(10)), "ops", "Pump", "stopped") for _ in range(4)]
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                answer = await client.submit(items)
            except Unavailable as error:
                heard.add(error.code)
                gate.set()
                await clock.sleep(0.2)
                continue
            assert isinstance(answer, Ack)
            assert {result.verdict for result in answer.results} == {ACCEPTED}
            await gate.wait()
            await client.close()
            return items
