"""Central with hardly more memory than it needs to start, while sites bring large notifications."""

import asyncio
import os
from pathlib import Path
from random import Random

import asyncpg
import msgspec
import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.ids import new_ids
from fieldpost.core.times import to_microseconds
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Item
from fieldpost.link.session import LinkSession
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from support.ports import free_port
from support.running_central import RunningCentral, call

MEBIBYTE = 1024 * 1024
LEFT = 16 * MEBIBYTE
"""What central may use beyond what it needs to start."""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit})); "
SITES = 6
ROWS = 300
BODY_BYTES = 60_000
_FILL = """
INSERT INTO messages (message_id, category, target, payload, created_at)
VALUES (?, 'notification', 'central', ?, ?)
"""


class SendingSite:
    """A buffer full of large notifications, and what empties it."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        folder.mkdir()
        clock, session = SystemClock(), LinkSession()
        self.ids = new_ids(clock.now(), os.urandom(10 * ROWS))
        self.troubles: set[str] = set()
        self._clock = clock
        self._buffer = Buffer(folder / "buffer.db")
        carrier = CentralCarrier(LinkClient(lambda: Endpoint(url, token), session, clock), session)
        self._forwarder = Forwarder(self._buffer, carrier, ForwardOptions(interval_s=0.5), clock, Random(1))
        now = to_microseconds(clock.now())
        rows = [(i, msgspec.json.encode(Item(i, "ops", "Pump", "b" * BODY_BYTES)).decode(), now) for i in self.ids]
        self._buffer.write(lambda cursor: cursor.executemany(_FILL, rows))

    async def drain(self) -> None:
        while sum(self._buffer.depth().waiting.values()):
            swept = await self._forwarder.sweep()
            assert not swept.boxed, "what central had no room for is no bad item"
            if swept.error is not None:
                self.troubles.add(swept.error)
                await self._clock.sleep(0.5)

    async def close(self) -> None:
        await self._forwarder.close()
        self._buffer.close()


@pytest.mark.timeout(600)
@pytest.mark.fault(60)
@pytest.mark.needs("linux")
async def test_central_with_little_memory_defers_notifications_and_loses_nothing(pg_url: str, tmp_path: Path) -> None:
    """A library may end the process where it gets no memory; then it is started again, as a service manager does."""
    async with RunningCentral(pg_url, tmp_path / "central", first="pass; ") as idle:
        limit = data_bytes(idle.pid) + LEFT
        await idle.stop()
    first = LIMITED.format(limit=limit)
    async with RunningCentral(pg_url, tmp_path / "central", first=first, port=free_port()) as central:
        api_token = (central.folder / "api-token").read_text().strip()
        sites = []
        for number in range(SITES):
            token = (await call(central, api_token, "POST", "sites", {"name": f"site-{number}"}))["token"]
            sites.append(SendingSite(tmp_path / f"site-{number}", central.url, token))
        keeping = asyncio.create_task(keep_running(central))
        async with asyncio.timeout(300):
            await asyncio.gather(*(site.drain() for site in sites))
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        for site in sites:
            await site.close()
        assert any(site.troubles for site in sites) or central.surprises(), "there was room for all of it"
        # Each of them once: what was acked is there, and what was sent again was known.
        assert await stored(pg_url) == sorted(i for site in sites for i in site.ids)


async def keep_running(central: RunningCentral) -> None:
    while True:
        assert central.process is not None
        await central.process.wait()
        await central.start()


def data_bytes(pid: int) -> int:
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmData:"))
    return int(line.split()[1]) * 1024


async def stored(pg_url: str) -> list[str]:
    connection = await asyncpg.connect(pg_url)
    try:
        return [row[0] for row in await connection.fetch("select notification_id::text from notifications order by 1")]
    finally:
        await connection.close()
