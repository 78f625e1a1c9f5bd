"""The part of `pair` with an outage: catching up, a snapshot while scripts send, and the takeover of a killed leader.

Catching up counts from the first answer of the node that was away: the start of its process takes longer than thousands
of changes. The snapshot is one of a million notifications, measured from its first row on. Its figure is the slowest
hundredth of `send` during it, against the same while the node is alone; the notes have the most memory of each process.
The takeover is measured without central, where it takes longest: from the kill of the leader to the first attempt of a
call that was waiting.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing, suppress
from pathlib import Path

from bench.harness import Figure, Report, percentile
from fieldpost import Site
from fieldpost.cli.local.agent_socket import ask_agent
from fieldpost.core.errors import FieldpostError
from fieldpost.link.pair_rows import has_reached
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication
from fieldpost.site.config.folder import read_folder
from fieldpost.testing import HttpServerThread

Agent = Callable[[Path], AbstractAsyncContextManager[asyncio.subprocess.Process]]
SNAPSHOT_ROWS = 1_000_000
WITHOUT_CENTRAL_S = 13.0
"""After this, a node knows that the pair was without central before the kill."""
TAKEOVER_S = 60.0
BODY = "x" * 300
FILL = """
INSERT INTO messages (message_id, category, target, payload, created_at)
WITH RECURSIVE numbers (number) AS (VALUES (1) UNION ALL SELECT number + 1 FROM numbers WHERE number < :rows)
SELECT printf('00000000-0000-7000-8000-%012x', number), 'notification', 'central', :payload, 0 FROM numbers
"""
REPEAT = """
INSERT INTO messages (message_id, category, target, payload, created_at)
WITH RECURSIVE numbers (number) AS (VALUES (1) UNION ALL SELECT number + 1 FROM numbers WHERE number < :rows),
    sample AS (SELECT payload FROM messages WHERE message_id <> '' LIMIT 1)
SELECT printf('00000000-0000-7000-9000-%012x', number), 'notification', 'central', payload, 0 FROM numbers, sample
"""
BEGUN = "SELECT 1 FROM copies WHERE message_id = '00000000-0000-7000-8000-000000000002'"


async def lead(node: Path) -> None:
    """Make the node of a running agent the leader; the benchmark has no central."""
    await until_up(node)
    body: dict[str, object] = {"reason": "the first leader", "is_forced": True}
    await asyncio.to_thread(ask_agent, node, "POST", "/v1/pair/promote", body, timeout_s=60)


async def catch_up(agent: Agent, first: Path, second: Path, count: int) -> Figure:
    """Changes per second that a node takes after it was away."""
    with closing(Buffer(read_folder(first).buffer_path)) as buffer:
        buffer.write(lambda cursor: cursor.execute(REPEAT, {"rows": count}).fetchall())
        acked = before = buffer.read(pair_state.acked)
        # From the first answer on: the start of a process takes longer than thousands of changes.
        async with agent(second):
            while acked == before:
                await asyncio.sleep(0.002)
                acked = buffer.read(pair_state.acked)
            began, left = time.perf_counter(), buffer.read(replication.behind, acked)
            last = buffer.read(replication.position)
            while not has_reached(buffer.read(pair_state.acked), last):
                await asyncio.sleep(0.002)
        return Figure("pair, catching up", left / (time.perf_counter() - began), "changes/s", notes=f"{left:,} changes")


async def until_copied(node: Path) -> None:
    with closing(Buffer(read_folder(node).buffer_path)) as buffer:
        while buffer.read(replication.behind, buffer.read(pair_state.acked)):
            await asyncio.sleep(0.01)


async def snapshot(report: Report, agent: Agent, first: Path, second: Path, rows: int) -> None:
    """Both agents must be stopped."""
    with closing(Buffer(read_folder(first).buffer_path)) as buffer:
        buffer.write(lambda cursor: cursor.execute(FILL, {"rows": rows, "payload": BODY}).fetchall())
        # One change whose predecessors are gone: the other node needs a snapshot.
        buffer.write(lambda cursor: cursor.execute("DELETE FROM messages WHERE message_id LIKE '%0000001'").fetchall())
        number = buffer.read(replication.position).changes
        buffer.write(pair_state.set_pruned, number)
    async with agent(first) as one:
        await until_up(first)
        alone = _Sender(first)
        await alone.send_for(3.0)
        async with agent(second) as other:
            memory = _Memory((one.pid, other.pid))
            watching = asyncio.create_task(memory.watch())
            await until_begun(second)
            during = _Sender(first)
            sending = asyncio.create_task(during.send_until_ended())
            began = time.perf_counter()
            await until_copied_past(first, number)
            took = time.perf_counter() - began
            during.is_ended = True
            await asyncio.gather(sending)
            watching.cancel()
    slow, usual = percentile(during.took, 0.99) * 1000, percentile(alone.took, 0.99) * 1000
    peaks = " and ".join(f"{memory.peak[pid] / 1e6:.0f} MB" for pid in memory.peak)
    notes = f"{rows:,} rows in {took:.1f} s; {peaks}; wanted: at most twice the reference, under 200 MB"
    report.add(Figure("pair, send p99 during a snapshot", slow, "ms", usual, notes=notes))


async def until_up(node: Path) -> None:
    """Until the agent answers: its start takes a core."""
    while True:
        with suppress(FieldpostError):
            await asyncio.to_thread(ask_agent, node, "GET", "/v1/site", timeout_s=60)
            return
        await asyncio.sleep(0.05)


async def until_begun(node: Path) -> None:
    """Until the node has a row of the snapshot."""
    with closing(Buffer(read_folder(node).buffer_path)) as buffer:
        while not buffer.read(lambda cursor: cursor.execute(BEGUN).fetchall()):
            await asyncio.sleep(0.005)


async def until_copied_past(node: Path, number: int) -> None:
    """Until the other node has all changes up to this one, which it has only at the end of the snapshot."""
    with closing(Buffer(read_folder(node).buffer_path)) as buffer:
        while buffer.read(pair_state.acked).changes < number:
            await asyncio.sleep(0.05)


async def takeover(agent: Agent, first: Path, second: Path, target: HttpServerThread) -> Figure:
    """Seconds from the kill of the leader to the first attempt of the other node."""
    target.on().answer(503)
    async with agent(first) as leader, agent(second):
        with Site.open(first) as site:
            await asyncio.to_thread(site.external("erp").call, "POST", "/orders", json={})
        await asyncio.sleep(WITHOUT_CENTRAL_S)
        leader.send_signal(signal.SIGKILL)
        began = time.perf_counter()
        await leader.wait()
        tried = len(target.requests)
        while len(target.requests) == tried and time.perf_counter() - began < TAKEOVER_S:
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
    return Figure("pair, takeover", took, "s", notes="kill to first retried call, without central; wanted: at most 15")


class _Sender:
    """A script that sends in a loop on a node."""

    def __init__(self, node: Path) -> None:
        self._node = node
        self.took: list[float] = []
        self.is_ended = False

    async def send_for(self, seconds: float) -> None:
        sending = asyncio.create_task(self.send_until_ended())
        await asyncio.sleep(seconds)
        self.is_ended = True
        await sending

    async def send_until_ended(self) -> None:
        await asyncio.to_thread(self._send)

    def _send(self) -> None:
        pause = threading.Event()
        with Site.open(self._node) as site:
            sender = site.notify.to("operators")
            while not self.is_ended:
                began = time.perf_counter()
                sender.send("Pump stopped", BODY)
                self.took.append(time.perf_counter() - began)
                pause.wait(0.002)


class _Memory:
    """The most resident memory of some processes, sampled."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self.peak = dict.fromkeys(pids, 0)

    async def watch(self) -> None:
        while True:
            for pid in self.peak:
                self.peak[pid] = max(self.peak[pid], _resident(pid))
            await asyncio.sleep(0.1)


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
