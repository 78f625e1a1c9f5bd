"""A proxy in front of PostgreSQL that cuts a connection right after its COMMIT, or lets nothing through for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

_PORT = 5432
P = TypeVar("P", bound="PgProxy")


class PgProxy:
    """Between a store and its server; a test changes how it behaves at any time."""

    def __init__(self, url: str) -> None:
        self.url = ""
        self.commits_to_cut = 0
        """Of so many COMMITs to come the answer is lost: they reach the server, then the line is dead."""
        self.commits_cut = 0
        self.commit_mark = b"COMMIT"
        """By what a COMMIT is known; a statement that commits by itself is known by what it writes."""
        self._upstream = urlsplit(url)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def block(self) -> None:
        """Let nothing through, as a firewall that drops: neither answers nor errors."""
        self._open.clear()

    def unblock(self) -> None:
        self._open.set()

    def passed(self, data: bytes, is_begun: bool) -> None:
        """Called when data of a client has gone to the server; `is_begun`: inside a transaction."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._relay(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self._connect()
        is_cut = asyncio.Event()

        async def to_server() -> None:
            is_begun = False
            while data := await reader.read(65536):
                if self.commits_to_cut and self.commit_mark in data:
                    self.commits_to_cut -= 1
                    is_cut.set()
                await self._open.wait()
                server_writer.write(data)
                await server_writer.drain()
                self.passed(data, is_begun)
                is_begun = b"BEGIN" in data or (is_begun and b"COMMIT" not in data and b"ROLLBACK" not in data)

        async def to_client() -> None:
            while data := await server_reader.read(65536):
                if is_cut.is_set():
                    self.commits_cut += 1
                    return
                await self._open.wait()
                writer.write(data)
                await writer.drain()

        pumps = [asyncio.create_task(to_server()), asyncio.create_task(to_client())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            with suppress(OSError):
                await asyncio.gather(*pumps, return_exceptions=True)
            server_writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder = parse_qs(self._upstream.query).get("host", [""])[0]
        if folder.startswith("/"):
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{self._upstream.port or _PORT}")
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port or _PORT)


@asynccontextmanager
async def pg_proxy(url: str, kind: type[P] = PgProxy) -> AsyncIterator[P]:  # type: ignore[assignment]
    """A proxy for the database at this URL; its own `url` leads through it."""
    proxy = kind(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0] or "postgres"
    proxy.url = f"postgresql://{user}@127.0.0.1:{server.sockets[0].getsockname()[1]}{parts.path}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.unblock()
        await proxy.stop()
