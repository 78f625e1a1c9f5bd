"""Databases for tests: one template per worker, migrated once; a fresh copy per test."""

import asyncio
import secrets
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")
FILE_COPY_SINCE = (15,)


class PostgresDatabases:
    """Makes and drops databases on one server; a copy of the template has the whole present schema."""

    def __init__(self, server_url: str, worker: str) -> None:
        self.server_url = server_url
        # The server may be somebody's own (TEST_PG_DSN) and used by several sessions at once.
        self.prefix = f"fieldpost_test_{worker}_{secrets.token_hex(4)}"
        self.template = f"{self.prefix}_template"
        self.strategy = ""
        self.count = 0
        # One connection for all of it, on a loop and in a thread of its own: see apart().
        self.thread = ThreadPoolExecutor(1)
        self.runner = asyncio.Runner()
        self.connection: asyncpg.Connection | None = None

    def make_template(self) -> None:
        self._execute(f'CREATE DATABASE "{self.template}" ENCODING UTF8 TEMPLATE template0')
        migrate(self.url(self.template))
        if self.connection is not None and self.connection.get_server_version() >= FILE_COPY_SINCE:
            # By way of the log, the default since then, a copy takes twice the time.
            self.strategy = " STRATEGY FILE_COPY"

    @contextmanager
    def fresh(self, *, is_empty: bool = False) -> Iterator[str]:
        self.count += 1
        name = f"{self.prefix}_{self.count}"
        self._execute(
            f'CREATE DATABASE "{name}" TEMPLATE "{"template0" if is_empty else self.template}"{self.strategy}'
        )
        try:
            yield self.url(name)
        finally:
            self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def url(self, database: str) -> str:
        parts = urlsplit(self.server_url)
        url = urlunsplit(parts._replace(path=f"/{database}"))
        # urlunsplit leaves out an empty host together with its slashes; a URL for a socket needs them.
        return url if "://" in url else url.replace(":", "://", 1)

    def close(self) -> None:
        """Drop the template and leave the server."""
        if self.connection is not None:
            self._execute(f'DROP DATABASE IF EXISTS "{self.template}" WITH (FORCE)')
            self.thread.submit(self.runner.run, self.connection.close()).result()
            self.thread.submit(self.runner.close).result()
        self.thread.shutdown()

    def _execute(self, statement: str) -> None:
        self.thread.submit(lambda: self.runner.run(self._run(statement))).result()

    async def _run(self, statement: str) -> None:
        if self.connection is None or self.connection.is_closed():
            self.connection = await asyncpg.connect(self.server_url)
        await self.connection.execute(statement)


class SqliteFiles:
    """Copies of one SQLite file that has the whole present schema."""

    def __init__(self, folder: Path) -> None:
        self.template = folder / "template.db"
        migrate(f"sqlite:///{self.template}")

    def fresh(self, folder: Path) -> str:
        file = folder / "central.db"
        if self.template.exists():
            shutil.copyfile(self.template, file)
        return f"sqlite:///{file}"


def migrate(url: str) -> None:
    """Bring the store at ``url`` to the present schema, as ``fieldpost migrate`` does."""
    if find_spec("fieldpost.central.store.schema.migrate") is None:
        return
    from fieldpost.central.store.schema.migrate import upgrade

    apart(lambda: upgrade(url))


def apart(work: Callable[[], T]) -> T:
    """Run it in a thread of its own: pytest's thread may own an event loop, and ``asyncio.run`` would take it away."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
