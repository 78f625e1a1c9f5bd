"""`audit`: `ingest` and `dispatch` while the sealer seals every entry they write, compared with the same without it.

The sealer works at every interval of 10 s, so a short round would contain all of its work or none. Here a round lasts
until every entry it wrote is sealed, with a sweep every quarter of a second: the share of a node that is always busy
and also leads. A node that does not lead pays nothing.

Seen in CPU time of our process, with other work on both cores: an entry costs 2 to 3 µs on PostgreSQL, which packs and
hashes a batch in one value, and 5 to 6 µs on SQLite, which concatenates a batch into one text; `dispatch` keeps 0.95 to
0.97 of its rate. `ingest` in full batches kept 0.86 to 0.92 when SQLite returned a row per entry, at 7 to 11 µs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from bench.dispatch import drain, fill
from bench.harness import Report, Stopwatch, compare
from bench.ingest import BATCH
from bench.material import add_lists, items
from bench.stores import Stores
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.secrets.keyring import Keyring, SecretKey
from fieldpost.central.store.engine.store import Store
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.sealer import Sealer
from fieldpost.clock import SystemClock
from fieldpost.link.messages import Submit

SWEEP_S = 0.25
ROUNDS = 5
Work = Callable[[], Awaitable[None]]


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows = 4_000 if quick else 20_000
    for kind in ("sqlite", "postgresql"):
        async with stores.open(kind) as store:
            await add_lists(store)
            clock = SystemClock()
            leader = Leader(store, "bench", clock, UpkeepOptions(lease_s=3600.0))
            await leader.campaign()
            sealer = Sealer(store, clock, leader, Keyring([SecretKey.of(bytes(range(32)))]), timedelta(days=365))

            async def submit(store: Store = store) -> None:
                ingest = Ingest(store, SystemClock())
                for number in range(0, rows, BATCH):
                    await ingest.submit("plant", Submit(number, items(BATCH)))

            async def empty(store: Store = store) -> None:
                await drain(store, rows)

            async def nothing() -> None:
                return

            async def refill(store: Store = store) -> None:
                await fill(store, rows)

            for name, prepare, work in (("ingest", nothing, submit), ("dispatch", refill, empty)):
                notes = f"{rows:,} rows and their audit entries; reference: without the sealer"
                figure = await compare(
                    f"{name} {kind}, sealed",
                    partial(sealed, sealer, prepare, work, rows),
                    partial(unsealed, sealer, prepare, work, rows),
                    ROUNDS,
                    "rows/s",
                    notes,
                )
                report.add(figure)
                if name == "ingest":
                    await drain(store, rows * (2 * ROUNDS + 2))


async def sealed(sealer: Sealer, prepare: Work, work: Work, rows: int) -> float:
    await prepare()
    await sealer.sweep()

    async def seal() -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await sealer.sweep()

    watch = Stopwatch()
    sealing = asyncio.create_task(seal())
    await work()
    sealing.cancel()
    await asyncio.gather(sealing, return_exceptions=True)
    await sealer.sweep()
    return watch.rate(rows)


async def unsealed(sealer: Sealer, prepare: Work, work: Work, rows: int) -> float:
    await prepare()
    await sealer.sweep()
    watch = Stopwatch()
    await work()
    return watch.rate(rows)
