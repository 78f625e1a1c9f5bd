"""Hostile connections of several kinds, held open against central while a probe from another address asks for service.

Each of them opens again as soon as central ends it, until the test is over.
"""

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from fieldpost.front.server import CentralServer
from fieldpost.front.tls import Certificate
from support.front import ADMIN, Front
from support.line import submit_of

LARGE_PATH = "/static/vendor/htmx.min.js"
PROBE_ADDRESS = "127.0.200.1"
PROBE_DEADLINE_S = 5.0
HOSTILE_SITE = "plant-8"
REOPEN_S = 0.5
PING = bytes([0x89, 0x80 | 100]) + bytes(104)


@dataclass
class Target:
    """A served central: where it is, what authenticates a site, and what it holds."""

    front: Front
    server: CentralServer
    trusting: ssl.SSLContext | None
    probes: list[float] = field(default_factory=list)
    """Seconds that each probe took."""

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.server.url)
        return str(parts.hostname), int(parts.port or 0)

    @property
    def open_count(self) -> int:
        return len(self.server.server_state.connections)

    async def probe(self) -> None:
        """Ask for /healthz and submit as a site, over new connections; both must succeed in time."""
        headers = {"Authorization": f"Bearer {self.front.tokens['site']}", "Content-Type": "application/json"}
        connector = aiohttp.TCPConnector(
            local_addr=(PROBE_ADDRESS, 0), force_close=True, ssl=self.trusting or False, limit=1
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.timeout(PROBE_DEADLINE_S), aiohttp.ClientSession(connector=connector) as http:
            async with http.get(f"{self.server.url}/healthz") as answer:
                assert answer.status == 200, (answer.status, await answer.text())
            content = submit_of(self.front.centre.item())
            async with http.post(f"{self.server.url}/link/v1/submit", data=content, headers=headers) as answer:
                assert answer.status == 200, (answer.status, await answer.text())
        self.probes.append(loop.time() - started)


@asynccontextmanager
async def target_of(
    front: Front, options: FrontOptions, trusting: ssl.SSLContext | None = None
) -> AsyncIterator[Target]:
    """Serve the application on all loopback addresses, with TLS if the options name a certificate."""
    app = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options)
    front.tokens[HOSTILE_SITE] = (await front.operate.sites.add(ADMIN, HOSTILE_SITE)).token
    certificate = Certificate(options) if options.tls_cert else None
    server = CentralServer(app, socket.create_server(("127.0.0.1", 0), backlog=1024), options, certificate)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(20):
            await server.ready()
        yield Target(front, server, trusting)
    finally:
        server.should_exit = True
        await serving


class Peer:
    """One hostile connection: plain bytes, over TLS if central uses it."""

    def __init__(self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.token = target.front.tokens[HOSTILE_SITE]
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        while await self.reader.read(65536):
            pass

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]


Behaviour = Callable[[Peer], Awaitable[None]]


async def slow_head(peer: Peer) -> None:
    await peer.send(b"GET / HTTP/1.1\r\nHost: central\r\n")
    while True:
        await peer.send(b"X")
        await asyncio.sleep(0.1)


async def slow_body(peer: Peer) -> None:
    await peer.send(
        b"POST /login HTTP/1.1\r\nHost: central\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: 9000\r\n\r\n"
    )
    while True:
        await peer.send(b"x")
        await asyncio.sleep(0.1)


async def slow_reader(peer: Peer) -> None:
    peer.stop_reading()
    request = f"GET {LARGE_PATH} HTTP/1.1\r\nHost: central\r\n\r\n".encode()
    while True:
        await peer.send(request * 4)
        await asyncio.sleep(0.05)


async def idle(peer: Peer) -> None:
    await peer.until_closed()


async def ping_flood(peer: Peer) -> None:
    await peer.send(
        b"GET /link/v1/data HTTP/1.1\r\nHost: central\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Authorization: Bearer " + peer.token.encode() + b"\r\n\r\n"
    )
    peer.stop_reading()
    while True:
        await peer.send(PING * 100)
        await asyncio.sleep(0.01)


KINDS: dict[str, Behaviour] = {
    "slow head": slow_head,
    "slow body": slow_body,
    "slow reader": slow_reader,
    "idle": idle,
    "ping flood": ping_flood,
}
SILENT = "silent TLS"
"""Connects to a TLS port and never begins the handshake."""


async def _keep_open(target: Target, behaviour: Behaviour, source: str, *, is_silent: bool) -> None:
    while True:
        writer: asyncio.StreamWriter | None = None
        with suppress(OSError, EOFError, asyncio.IncompleteReadError, TimeoutError):
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.setblocking(False)
            raw.bind((source, 0))
            try:
                async with asyncio.timeout(5):
                    await asyncio.get_running_loop().sock_connect(raw, target.address)
                    tls = None if is_silent else target.trusting
                    reader, writer = await asyncio.open_connection(
                        sock=raw, ssl=tls, server_hostname="127.0.0.1" if tls else None
                    )
                await behaviour(Peer(target, reader, writer))
            finally:
                if writer is not None:
                    writer.transport.abort()
                else:
                    raw.close()
        await asyncio.sleep(REOPEN_S)


@asynccontextmanager
async def hostile(target: Target, kind: str, count: int, *, addresses: int) -> AsyncIterator[None]:
    """Hold hostile connections of a kind from this number of loopback addresses."""
    sources = itertools.cycle(f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(addresses))
    behaviour = idle if kind == SILENT else KINDS[kind]
    tasks = [
        asyncio.create_task(_keep_open(target, behaviour, next(sources), is_silent=kind == SILENT))
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def withstand(
    target: Target, kind: str, count: int, *, addresses: int, seconds: float, grown_max: int = 50 * 1024 * 1024
) -> None:
    """Probe central throughout the attack; afterwards it must be as before."""
    loop = asyncio.get_running_loop()
    await target.probe()
    resident, files = resident_bytes(), open_files()
    async with hostile(target, kind, count, addresses=addresses):
        await asyncio.sleep(0.3)
        until = loop.time() + seconds
        while loop.time() < until:
            await target.probe()
            await asyncio.sleep(0.1)
        grown = resident_bytes() - resident
        assert grown < grown_max, f"RSS grew by {grown} bytes"
    async with asyncio.timeout(15):
        while target.open_count or open_files() > files + 8:
            await asyncio.sleep(0.05)
    await target.probe()


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
