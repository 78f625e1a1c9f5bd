"""`fleet`: 1,000 sites and one `fieldpost central` on PostgreSQL, with default settings.

The sites are real link clients in two processes (`fleet_sites.py`): 900 light ones, and 100 with a buffer on disk, the
forwarder and the reports of an agent. Central is one process and dispatches to a mail sink. In turn:

- *idle*: all sites are connected, with a data and a control connection each. Memory is the growth of the process per
  site; CPU is the idle load, in µs of one core per second and site.
- *reconnect*: central is killed and restarted while every site has a notification to send. A site is back when central
  has a health report and that notification from it, both over new connections.
- *drain*: 100 sites start at the same moment to forward the same number of rows. A site is done when its last row is
  stored. Every half second the table is queried for the age of the oldest site report.

There is no reference and therefore no ratio: the targets are in the notes. Sites, central, database, mail sink and
measurement share one machine. `--quick` uses a fifth: 200 sites, 20 of which drain 20,000 rows; its drain is too short
for late reports.

Measured on two shared cores (load 6 from other work), PostgreSQL 15, November 2026: idle 76 kB and 73 µs/s per site at
central, 7 % of a core for all; an agent 496 kB and 1.3 ms/s; all sites back 18.7 s after the kill, of which they wait
10 to 15 s before reconnecting; 200,000 rows in 41 s (4,900/s) with mailing; slowest/fastest 1.02; oldest report 30.5 s;
central at most 220 MB. With twice that load: back after 25 to 32 s, 3,000 rows/s, 1.03, 33.8 s, 220 MB.
"""

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from bench.harness import Figure, Report
from bench.mail_sink import HOST, sink
from bench.material import LISTS
from bench.stores import Stores
from fieldpost.central import adapters
from fieldpost.central.operate.operate import Operate
from fieldpost.central.secrets.keyring import Keyring, SecretKey
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.notifications import lists
from fieldpost.clock import SystemClock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.lists import Channel, NotificationList

START_S = 60.0
BACK_S = 120.0
DRAIN_S = 150.0
TICKS = os.sysconf("SC_CLK_TCK")
_BACK = """
select (select count(*) from site_health where received_at > $1),
       (select count(distinct source_site_id) from notifications where created_at > $1)
"""
_OLDEST = "select extract(epoch from clock_timestamp() - min(received_at))::float from site_health"
_STORED = "select count(*) from notifications where created_at > $1"
_THROUGH = """
select extract(epoch from max(created_at) - $1)::float from notifications where created_at > $1
group by source_site_id having count(*) >= $2
"""


@dataclass(frozen=True)
class Scale:
    sites: int
    draining: int
    rows: int
    idle_s: float

    @property
    def rows_each(self) -> int:
        return self.rows // self.draining


WHOLE = Scale(1_000, 100, 200_000, 30.0)
QUICK = Scale(200, 20, 20_000, 6.0)


async def run(report: Report, stores: Stores, quick: bool) -> None:
    scale = QUICK if quick else WHOLE
    url = await stores.url("postgresql")
    async with AsyncExitStack() as stack:
        port, _ = stack.enter_context(sink())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tokens = await _furnish(url, port, scale.sites)
        central = await stack.enter_async_context(Central(url, folder / "central"))
        database = await asyncpg.connect(url)
        stack.push_async_callback(database.close)
        fleet = Fleet(report, scale, central, database)
        alone = central.memory()
        since = await fleet.now()
        for kind, named in (("whole", tokens[: scale.draining]), ("light", tokens[scale.draining :])):
            fleet.groups.append(await stack.enter_async_context(sites(kind, central.url, folder / kind, named)))
        await fleet.connect(since)
        await fleet.rest(alone)
        await fleet.restart()
        await fleet.drain()


class Fleet:
    """The whole setup and its measurements."""

    def __init__(
        self, report: Report, scale: Scale, central: "Central", database: "asyncpg.Connection[asyncpg.Record]"
    ) -> None:
        self.groups: list[Group] = []
        self._report = report
        self._scale = scale
        self._central = central
        self._database = database

    async def connect(self, since: datetime) -> None:
        """Wait until all sites, created after this time, have connected and sent a notification."""
        await self._order("say 1")
        await self._until_back(since)

    async def rest(self, alone: int) -> None:
        parts: list[tuple[str, Process, int, int]] = [("central", self._central, alone, self._scale.sites)]
        parts += [(f"{group.kind} site", group, group.alone, group.count) for group in self.groups]
        before = [part.cpu_s() for _, part, *_ in parts]
        await asyncio.sleep(self._scale.idle_s)
        for (name, part, empty, count), cpu_s in zip(parts, before, strict=True):
            each_kb = (part.memory() - empty) / count / 1024
            cpu = (part.cpu_s() - cpu_s) / self._scale.idle_s
            notes = f"{count} sites, {part.memory() / 1e6:.0f} MB in all"
            self._add(f"idle memory {name}", each_kb, "kB/site", notes)
            notes = f"{count} sites, {cpu:.1%} of a core in all"
            self._add(f"idle CPU {name}", cpu / count * 1e6, "µs/s/site", notes)

    async def restart(self) -> None:
        since = await self.now()
        began = time.perf_counter()
        await self._central.kill()
        await self._order("say 1")
        await self._central.start()
        served = time.perf_counter() - began
        await self._until_back(since)
        notes = f"{self._scale.sites} sites, from the kill on; served again after {served:.1f} s; wanted: within 30"
        self._add("reconnect", time.perf_counter() - began, "s", notes)

    async def drain(self) -> None:
        scale = self._scale
        await self.groups[0].order(f"fill {scale.rows_each}")
        since = await self.now()
        cpu_s, began = self._central.cpu_s(), time.perf_counter()
        await self.groups[0].order("forward")
        oldest: list[float] = []
        async with asyncio.timeout(DRAIN_S):
            while len(through := await self._through(since)) < scale.draining:
                oldest.append(await self._database.fetchval(_OLDEST))
                await asyncio.sleep(0.5)
        took_s = time.perf_counter() - began
        cpu = (self._central.cpu_s() - cpu_s) / took_s
        notes = f"{scale.rows} rows of {scale.draining} sites, mailed meanwhile; central's CPU {cpu:.0%} of a core"
        self._add("drain", scale.rows / max(through), "rows/s", notes)
        notes = f"slowest {max(through):.1f} s, fastest {min(through):.1f} s; wanted: at most 2"
        self._add("fairness", max(through) / min(through), "slowest/fastest", notes)
        self._add("oldest health report", max(oldest), "s", f"of {scale.sites} sites, while draining; wanted: under 45")
        self._add("memory central", self._central.memory_peak() / 1e6, "MB", "the most it ever had; wanted: under 500")

    async def _until_back(self, since: datetime) -> None:
        async with asyncio.timeout(BACK_S):
            while tuple(await self._database.fetchrow(_BACK, since) or ()) != (self._scale.sites,) * 2:
                await asyncio.sleep(0.2)

    async def _through(self, since: datetime) -> list[float]:
        """Time until each finished site was done; the expensive count runs only when needed."""
        if await self._database.fetchval(_STORED, since) < self._scale.rows:
            return []
        return [row[0] for row in await self._database.fetch(_THROUGH, since, self._scale.rows_each)]

    async def _order(self, command: str) -> None:
        await asyncio.gather(*(group.order(command) for group in self.groups))

    async def now(self) -> datetime:
        now = await self._database.fetchval("select clock_timestamp()")
        assert isinstance(now, datetime)
        return now

    def _add(self, name: str, figure: float, unit: str, notes: str) -> None:
        self._report.add(Figure(f"fleet {name}", figure, unit, notes=notes))


class Process:
    """A child process with measured resource usage."""

    process: asyncio.subprocess.Process

    def memory(self) -> int:
        return self._status("VmRSS:")

    def memory_peak(self) -> int:
        return self._status("VmHWM:")

    def cpu_s(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / TICKS

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition(name)[2].split()[0]) * 1024


class Central(Process):
    """`fieldpost central` as an operator starts it; keeps its port over a restart."""

    def __init__(self, store_url: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        self.url = f"http://{HOST}:{port}"
        self._folder = folder
        self._command = [sys.executable, "-c", "from fieldpost.cli.main import main; main()", "central", "--log-json"]
        self._command += ["--store", store_url, "--folder", str(folder), "--port", str(port)]

    async def __aenter__(self) -> "Central":
        self._folder.mkdir()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FIELDPOST_")}
        with (self._folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment, cwd=self._folder
            )
        assert self.process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await self.process.stdout.readline()
        assert line.startswith(b"Central serves"), (self._folder / "log").read_text()[-2000:]

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Group(Process):
    """A process that runs many sites."""

    def __init__(self, kind: str, count: int, process: asyncio.subprocess.Process) -> None:
        self.kind = kind
        self.count = count
        self.process = process
        self.alone = self.memory()
        """Usage before any site was created."""

    async def order(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        await self.heard()

    async def heard(self) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(START_S):
            assert await self.process.stdout.readline(), f"the {self.kind} sites have ended"


@asynccontextmanager
async def sites(kind: str, url: str, folder: Path, named: Sequence[tuple[str, str]]) -> AsyncIterator[Group]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.fleet_sites", kind, url, str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            assert await process.stdout.readline() == b"ready\n"
        group = Group(kind, len(named), process)
        process.stdin.write("".join(f"{name} {token}\n" for name, token in named).encode())
        await group.order("")
        yield group
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _furnish(url: str, port: int, count: int) -> list[tuple[str, str]]:
    """Create a mail channel, lists and sites; return the sites' names and tokens."""
    store, now = open_store(url), datetime.now(UTC)
    settings = {"host": HOST, "port": port, "tls": "none", "from_address": "alerts@plant.example"}
    await store.write(lists.add_channel, Channel("mail", "email", settings, is_default=True), now)
    for number in range(LISTS):
        one = NotificationList(f"ops{number}", "email", None, (f"ops{number}@plant.example",))
        await store.write(lists.add_list, one, now)
    operate = Operate.over(store, adapters.load(), SystemClock(), Keyring([SecretKey.of(bytes(32))]))
    admin = Actor("admin", Role.ADMIN)
    added = [await operate.sites.add(admin, f"site-{number}") for number in range(count)]
    await store.close()
    return [(one.name, one.token) for one in added]
