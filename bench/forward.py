"""`forward`: from a site's buffer to a row at central, acked and removed, over the link; 1 and 20 sites, both stores.

Central is a process without a dispatcher. Ours: real buffers, forwarders and link clients, all sites in one process,
each with an open data connection; a round ends when every buffer is empty. Reference: a plain WebSocket server process
that writes the same two rows per notification (see `ingest`) and replies after the commit; the same number of
connections, each with batches of 100, one at a time. It has no buffer, no tokens, no limits and no checks. On
PostgreSQL with 20 sites ours is limited by the two cores that run sites, central and database: half of the time per row
is the database's, for both; the rest is shared equally by central and the sites' buffers (ADR 0023). Both processes
freeze loaded objects for the garbage collector, as `fieldpost central` and `fieldpost site` do.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import aiohttp
import msgspec

from bench.harness import Report, Stopwatch, compare
from bench.material import items
from bench.stores import Stores
from fieldpost.clock import SystemClock
from fieldpost.core.times import to_microseconds
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Submit
from fieldpost.link.session import LinkSession
from fieldpost.run import gc_tuning
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder

BATCH = 100
FLEETS = (1, 20)
_FILL = """
INSERT INTO messages (message_id, category, target, payload, created_at)
VALUES (?, 'notification', 'central', ?, ?)
"""


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows = 4_000 if quick else 20_000
    rounds = 3 if quick else 5
    for kind in ("sqlite", "postgresql"):
        for count in FLEETS:
            async with (
                served("ours", await stores.url(kind), count) as (url, tokens),
                served("bare", await stores.url(kind), count) as (bare_url, _),
                fleet(url, tokens) as sites,
                bare_connections(bare_url, count) as sockets,
            ):
                share = rows // count

                async def ours(sites: "Sequence[FleetSite]" = sites, share: int = share) -> float:
                    for site in sites:
                        site.fill(share)
                    watch = Stopwatch()
                    await asyncio.gather(*(site.drain() for site in sites))
                    return watch.rate(share * len(sites))

                async def reference(sockets: "Sequence[Socket]" = sockets, share: int = share) -> float:
                    made = [
                        [msgspec.json.encode(Submit(0, items(BATCH))) for _ in range(share // BATCH)] for _ in sockets
                    ]
                    watch = Stopwatch()
                    await asyncio.gather(
                        *(send_bare(socket, batches) for socket, batches in zip(sockets, made, strict=True))
                    )
                    return watch.rate(share * len(sockets))

                plural = "site" if count == 1 else "sites"
                notes = f"{rows} rows a round over {count} {plural}; reference: batches of {BATCH}, one under way each"
                figure = await compare(f"forward {kind} {count} {plural}", ours, reference, rounds, "rows/s", notes)
                report.add(figure)


class FleetSite:
    """One site: a buffer and its forwarder."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.buffer = Buffer(folder / "buffer.db")
        session = LinkSession()
        client = LinkClient(lambda: Endpoint(url, token), session, SystemClock())
        carrier = CentralCarrier(client, session)
        self.forwarder = Forwarder(self.buffer, carrier, ForwardOptions(), SystemClock(), Random(1))

    def fill(self, count: int) -> None:
        now = to_microseconds(datetime.now(UTC))
        rows = [(item.notification_id, msgspec.json.encode(item).decode(), now) for item in items(count)]
        self.buffer.write(lambda cursor: cursor.executemany(_FILL, rows))

    async def drain(self) -> None:
        while sum(self.buffer.depth().waiting.values()):
            swept = await self.forwarder.sweep()
            assert not swept.boxed, swept
            assert swept.error is None or "wait" in swept.error, swept

    async def close(self) -> None:
        await self.forwarder.close()
        self.buffer.close()


@asynccontextmanager
async def fleet(url: str, tokens: Sequence[str]) -> AsyncIterator[list[FleetSite]]:
    """Sites that have connected to central once."""
    with tempfile.TemporaryDirectory() as folder:
        sites = []
        try:
            for number, token in enumerate(tokens):
                place = Path(folder) / str(number)
                place.mkdir()
                sites.append(FleetSite(place, url, token))
                sites[-1].fill(1)
                await sites[-1].drain()
            gc_tuning.set_aside()
            yield sites
        finally:
            for site in sites:
                await site.close()


Socket = aiohttp.ClientWebSocketResponse


@asynccontextmanager
async def bare_connections(url: str, count: int) -> AsyncIterator[list[Socket]]:
    async with aiohttp.ClientSession() as http:
        yield [await http.ws_connect(url) for _ in range(count)]


async def send_bare(socket: Socket, batches: Sequence[bytes]) -> None:
    for batch in batches:
        await socket.send_bytes(batch)
        await socket.receive_bytes()


@asynccontextmanager
async def served(what: str, store_url: str, sites: int) -> AsyncIterator[tuple[str, list[str]]]:
    """A central of this kind in its own process: its URL and the tokens of its sites."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.forward_central", what, store_url, str(sites)), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            url, *tokens = (await process.stdout.readline()).decode().split()
        yield url, tokens
    finally:
        process.terminate()
        await process.wait()
