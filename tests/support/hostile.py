"""Central under hostile connections (`support.hostile_peers`), while a probe from another address asks for service."""

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec

from fieldpost.clock import SystemClock
from fieldpost.core.ids import new_id
from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from fieldpost.front.server import CentralServer
from fieldpost.front.tls import Certificate
from fieldpost.link.messages import Item
from support.front import ADMIN, Front
from support.hostile_peers import Attack
from support.line import submit_of
from support.running_central import RunningCentral

TESTS = Path(__file__).parents[1]
PROBE_ADDRESS = "127.0.200.1"
PROBE_DEADLINE_S = 5.0
GROWN_MAX = 50 * 1024 * 1024
SITES = ("plant-7", "plant-8")
"""The probe's site, and the one that the attackers pretend to be."""


@dataclass
class Target:
    """A served central: where it is, what authenticates its sites, and the process it runs in."""

    url: str
    tokens: tuple[str, str]
    """Of `SITES`."""
    trusting: ssl.SSLContext | None
    pid: int
    probes: list[float] = field(default_factory=list)
    """Seconds that each probe took."""

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    @property
    def resident(self) -> int:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def probe(self) -> None:
        """Ask for /healthz and submit as a site, over new connections; both must succeed in time.

        A full central closes the connection that has waited longest; on a busy machine that may be the probe's, whose
        request is still on its way. Like every client of central it connects again.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.timeout(PROBE_DEADLINE_S):
            for ask in (self._check_health, self._submit):
                while True:
                    connector = aiohttp.TCPConnector(
                        local_addr=(PROBE_ADDRESS, 0), force_close=True, ssl=self.trusting or False, limit=1
                    )
                    async with aiohttp.ClientSession(connector=connector) as http:
                        try:
                            await ask(http)
                        except aiohttp.ClientConnectionError:
                            continue
                        break
        self.probes.append(loop.time() - started)

    async def _check_health(self, http: aiohttp.ClientSession) -> None:
        async with http.get(f"{self.url}/healthz") as answer:
            assert answer.status == 200, (answer.status, await answer.text())

    async def _submit(self, http: aiohttp.ClientSession) -> None:
        headers = {"Authorization": f"Bearer {self.tokens[0]}", "Content-Type": "application/json"}
        item = Item(new_id(SystemClock().now(), os.urandom(10)), "ops", "Pump 3 stopped", "No flow.")
        async with http.post(f"{self.url}/link/v1/submit", data=submit_of(item), headers=headers) as answer:
            assert answer.status == 200, (answer.status, await answer.text())


@dataclass
class LocalTarget(Target):
    """Served by this process."""

    front: Front = field(kw_only=True)
    server: CentralServer = field(kw_only=True)

    @property
    def open_count(self) -> int:
        return len(self.server.server_state.connections)


@asynccontextmanager
async def target_of(
    front: Front, options: FrontOptions, trusting: ssl.SSLContext | None = None
) -> AsyncIterator[LocalTarget]:
    """Serve the application, with TLS if the options name a certificate."""
    app = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options)
    hostile_token = (await front.operate.sites.add(ADMIN, SITES[1])).token
    certificate = Certificate(options) if options.tls_cert else None
    server = CentralServer(app, socket.create_server(("127.0.0.1", 0), backlog=1024), options, certificate)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(20):
            await server.ready()
        tokens = (front.tokens["site"], hostile_token)
        yield LocalTarget(server.url, tokens, trusting, os.getpid(), front=front, server=server)
    finally:
        server.should_exit = True
        await serving


async def running_target(central: RunningCentral, trusting: ssl.SSLContext | None) -> Target:
    """A central that runs in a process of its own, with its two sites added."""
    token = (central.folder / "api-token").read_text().strip()
    connector = aiohttp.TCPConnector(ssl=trusting or True)
    tokens = []
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {token}"}, connector=connector, raise_for_status=True
    ) as http:
        for name in SITES:
            async with http.post(f"{central.url}/api/v1/sites", json={"name": name}) as answer:
                tokens.append(str((await answer.json())["token"]))
    return Target(central.url, (tokens[0], tokens[1]), trusting, central.pid)


@asynccontextmanager
async def hostile(target: Target, kind: str, count: int, *, addresses: int) -> AsyncIterator[None]:
    """Hold hostile connections of a kind from this number of loopback addresses, in a process of their own."""
    attack = Attack(
        port=target.address[1],
        kind=kind,
        count=count,
        addresses=addresses,
        token=target.tokens[1],
        has_tls=target.trusting is not None,
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.hostile_peers"),
        cwd=TESTS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(attack) + b"\n")
    try:
        await process.stdin.drain()
        async with asyncio.timeout(20):
            assert await process.stdout.readline(), "the attack did not begin"
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        await process.communicate(b"")


async def withstand(target: Target, kind: str, count: int, *, addresses: int, seconds: float) -> None:
    """Probe central throughout the attack; afterwards it must be as before."""
    loop = asyncio.get_running_loop()
    await target.probe()
    resident, files = target.resident, target.open_files
    async with hostile(target, kind, count, addresses=addresses):
        until = loop.time() + seconds
        while loop.time() < until:
            await target.probe()
            await asyncio.sleep(0.1)
        grown = target.resident - resident
        assert grown < GROWN_MAX, f"RSS grew by {grown} bytes"
    async with asyncio.timeout(15):
        while target.open_files > files + 8:
            await asyncio.sleep(0.05)
    await target.probe()
