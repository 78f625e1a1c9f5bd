"""`backlog`: a site's buffer of a million rows: opened, and forwarded to its end; memory of the process that does it.

A process of its own opens the file and forwards all of it to a central like that of `forward`, also a process of its
own, on SQLite. No reference: `ready` is the time from the start of opening to the first batch in hand, `rate` is over
the whole backlog, `RSS` is the highest of the whole run, and `growth` how much of it came after the first tenth.
"""

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import msgspec

from bench.forward import served
from bench.harness import Figure, Report, log_to_nowhere
from bench.material import items
from bench.stores import Stores
from fieldpost.clock import SystemClock
from fieldpost.core.sites.message import Category
from fieldpost.core.times import to_microseconds
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.session import LinkSession
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder

_FILL = """
INSERT INTO messages (message_id, category, target, payload, created_at)
VALUES (?, 'notification', 'central', ?, ?)
"""
AT_ONCE = 20_000
"""Rows inserted per statement."""


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows = 100_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "buffer.db"
        fill(file, rows)
        async with served("ours", await stores.url("sqlite"), 1) as (url, tokens):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.backlog", str(file), url),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate(tokens[0].encode())
    found = json.loads(said)
    assert found["left"] == 0, found
    notes = f"{rows:,} rows of 540 bytes, one site, SQLite at both ends"
    report.add(Figure("backlog ready", found["ready_s"], "s", notes=notes))
    report.add(Figure("backlog rate", rows / found["took_s"], "rows/s", notes=notes))
    report.add(Figure("backlog RSS", found["peak_mb"], "MB", notes=notes))
    report.add(Figure("backlog growth", found["growth_mb"], "MB", notes="of it after the first tenth"))


def fill(file: Path, rows: int) -> None:
    buffer = Buffer(file)
    for _ in range(0, rows, AT_ONCE):
        now = to_microseconds(datetime.now(UTC))
        made = [(item.notification_id, msgspec.json.encode(item).decode(), now) for item in items(AT_ONCE)]
        buffer.write(lambda cursor, made=made: cursor.executemany(_FILL, made))
    buffer.close()


async def forward_all(file: Path, url: str, token: str) -> dict[str, float]:
    """Run the measurement in the child and print the result."""
    began = time.perf_counter()
    buffer = Buffer(file)
    first = buffer.take(datetime.now(UTC), items_max=500, bytes_max=1_000_000)
    ready_s = time.perf_counter() - began
    assert first
    total = buffer.depth().waiting[Category.NOTIFICATION]
    session = LinkSession()
    client = LinkClient(lambda: Endpoint(url, token), session, SystemClock())
    forwarder = Forwarder(buffer, CentralCarrier(client, session), ForwardOptions(), SystemClock(), Random(1))
    began, early_mb, left = time.perf_counter(), 0.0, total
    while left:
        sweeping = asyncio.create_task(forwarder.sweep())
        while not sweeping.done():
            await asyncio.wait([sweeping], timeout=0.5)
            if not early_mb and buffer.depth().waiting.get(Category.NOTIFICATION, 0) < total * 0.9:
                early_mb = peak_mb()
        left = buffer.depth().waiting.get(Category.NOTIFICATION, 0)
    took_s = time.perf_counter() - began
    await forwarder.close()
    buffer.close()
    found = {"ready_s": ready_s, "took_s": took_s, "left": left, "peak_mb": peak_mb()}
    return found | {"growth_mb": peak_mb() - (early_mb or peak_mb())}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    import uvloop

    log_to_nowhere()
    given = uvloop.run(forward_all(Path(sys.argv[1]), sys.argv[2], sys.stdin.read().strip()))
    os.write(1, json.dumps(given).encode())
