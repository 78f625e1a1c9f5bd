"""`pair`: what a second node costs a script, how far its copy is behind, and how fast it catches up.

Reference for `send`: the same on a single site, in the same run. With the standby absent the agent of the node runs and
finds nobody; with the standby stopped (SIGSTOP) it has a connection that answers nothing; both must cost nothing, since
no process of a script waits for the other node. With the standby running, three processes share this machine's cores.

The lag is the time from the end of a `send` until the node's buffer has the other one's acknowledgement of everything
written until then, calls included. Catching up, the snapshot and the takeover are in `pair_outage`.
"""

import asyncio
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from bench.enqueue import THREADS, rate_of
from bench.harness import Figure, Report, compare, percentile
from bench.pair_outage import SNAPSHOT_ROWS, catch_up, lead, snapshot, takeover, until_copied
from bench.stores import Stores
from fieldpost import Site
from fieldpost.clock import SystemClock
from fieldpost.link.credentials import issue
from fieldpost.link.pair_rows import StreamPosition, has_reached
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication
from fieldpost.site.config.folder import read_folder
from fieldpost.site.pair import pairing
from fieldpost.testing import HttpServerThread

ROUNDS = 9
SENDS_PER_S = 500
CALLS_PER_S = 50
BODY = "x" * 300


async def run(report: Report, _: Stores, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="fieldpost-bench-") as name:
        folder = Path(name)
        single, first, second = (folder / one for one in ("single", "first", "second"))
        with HttpServerThread() as target:
            for path, node in ((single, 0), (first, 0), (second, 1)):
                _make(path, node, target.url)
            await _pair(first, second)
            await _measure(report, single, first, second, target, quick)


async def _measure(
    report: Report, single: Path, first: Path, second: Path, target: HttpServerThread, quick: bool
) -> None:
    async with _agent(single), _agent(first):
        await lead(first)
        await _compare_sends(report, single, first, "standby absent", quick)
        async with _agent(second) as process:
            await until_copied(first)
            os.kill(process.pid, signal.SIGSTOP)
            await _compare_sends(report, single, first, "standby stopped", quick)
            os.kill(process.pid, signal.SIGCONT)
            await until_copied(first)
            await _compare_sends(report, single, first, "standby running", quick)
            await until_copied(first)
            report.add(await _lag(first, 3.0 if quick else 20.0))
        report.add(await catch_up(_agent, first, second, 10_000 if quick else 100_000))
    await snapshot(report, _agent, first, second, 10_000 if quick else SNAPSHOT_ROWS)
    if not quick:
        report.add(await takeover(_agent, first, second, target))


async def _compare_sends(report: Report, single: Path, paired: Path, what: str, quick: bool) -> None:
    with Site.open(single) as alone, Site.open(paired) as node:
        senders = alone.notify.to("operators"), node.notify.to("operators")
        for callers, count in ((1, 300 if quick else 1_000), (THREADS, 1_600 if quick else 4_000)):

            async def ours(callers: int = callers, count: int = count) -> float:
                return rate_of(lambda: senders[1].send("Pump stopped", BODY), callers, count)

            async def reference(callers: int = callers, count: int = count) -> float:
                return rate_of(lambda: senders[0].send("Pump stopped", BODY), callers, count)

            name = f"pair, {what}, {callers} caller{'s' if callers > 1 else ''}"
            rounds = 5 if quick else ROUNDS
            report.add(await compare(name, ours, reference, rounds, "rows/s", "send on a node against a single site"))


async def _lag(node: Path, seconds: float) -> Figure:
    """Send and call at fixed rates and sample the acknowledgements."""
    sent: list[tuple[StreamPosition, float]] = []
    lags: list[float] = []
    calling = asyncio.create_task(asyncio.to_thread(_call, node, seconds))
    with Site.open(node) as site, closing(Buffer(read_folder(node).buffer_path)) as buffer:
        sender = site.notify.to("operators")
        began = time.perf_counter()
        number = 0
        while number < seconds * SENDS_PER_S or sent:
            due = int((time.perf_counter() - began) * SENDS_PER_S)
            while number < min(due, seconds * SENDS_PER_S):
                sender.send("Pump stopped", BODY)
                number += 1
                sent.append((buffer.read(replication.position), time.perf_counter()))
            acked, now = buffer.read(pair_state.acked), time.perf_counter()
            lags += [now - at for place, at in sent if has_reached(acked, place)]
            sent = [(place, at) for place, at in sent if not has_reached(acked, place)]
            await asyncio.sleep(0.002)
    called = await calling
    rates = f"{SENDS_PER_S} sends/s and {called / seconds:.0f} calls/s"
    notes = f"p99 at {rates}; median {percentile(lags, 0.5) * 1000:.0f} ms"
    return Figure("pair, lag", percentile(lags, 0.99) * 1000, "ms", notes=notes)


def _call(node: Path, seconds: float) -> int:
    """Call at a fixed rate; returns how many calls were made."""
    pause = threading.Event()
    with Site.open(node) as site:
        erp = site.external("erp")
        began = time.perf_counter()
        count = 0
        while (passed := time.perf_counter() - began) < seconds:
            if count < passed * CALLS_PER_S:
                erp.call("POST", "/orders", json={})
                count += 1
            else:
                pause.wait(0.002)
    return count


def _make(path: Path, node: int, target: str) -> None:
    Site.create(path, "plant", "http://127.0.0.1:9", issue("site", os.urandom(40)).text).close()
    file = path / "site.toml"
    erp = f'\n[external.erp]\nurl = "{target}"\ntimeout_s = 5\nretry_interval_s = 0.2\nretries_max = 100000\n'
    file.write_text(file.read_text().replace("\n\n", f"\nnode = {node}\n\n", 1) + erp)


async def _pair(first: Path, second: Path) -> None:
    clock = SystemClock()
    lines: asyncio.Queue[str] = asyncio.Queue()
    with closing(Buffer(first / "buffer.db")) as one, closing(Buffer(second / "buffer.db")) as other:
        inviting = asyncio.create_task(
            pairing.invite(read_folder(first), one, _address(), os.urandom(40), clock, lines.put_nowait)
        )
        line = await lines.get()
        await asyncio.sleep(0.5)
        await pairing.join(read_folder(second), other, line, _address(), clock)
        await inviting


def _address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@asynccontextmanager
async def _agent(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    program = "from fieldpost.cli.main import main; main()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "site", "--folder", str(folder), "--log-level", "error"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
