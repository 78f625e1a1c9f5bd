"""Stores for benchmarks: SQLite on disk, and our own PostgreSQL server with fsync on."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.schema.migrate import upgrade_async

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.postgres import PostgresServer


@contextmanager
def servers() -> Iterator["Stores"]:
    with PostgresServer(durable=True) as postgres, tempfile.TemporaryDirectory() as folder:
        yield Stores(postgres, Path(folder))


class Stores:
    """New stores of either kind, with the current schema."""

    def __init__(self, postgres: PostgresServer, folder: Path) -> None:
        self._postgres = postgres
        self._folder = folder
        self._count = 0

    async def url(self, kind: str) -> str:
        self._count += 1
        if kind == "sqlite":
            url = f"sqlite:///{self._folder / f'{self._count}.db'}"
        else:
            connection = await asyncpg.connect(self._postgres.url())
            await connection.execute(f"create database bench{self._count}")
            await connection.close()
            url = self._postgres.url(f"bench{self._count}")
        await upgrade_async(url)
        return url

    @asynccontextmanager
    async def open(self, kind: str) -> AsyncIterator[Store]:
        store = open_store(await self.url(kind))
        listening = asyncio.create_task(store.wake.listen())
        try:
            yield store
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await store.close()
