"""An application with an outbox: its database, the rows it writes, and a relay to a central of our own."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fieldpost.core.actor import Role
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from fieldpost.outbox.ddl import ddl
from fieldpost.outbox.relay.database import parse_database
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.relay import RelayLoop
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.outbox.tables import OutboxDatabase
from fieldpost.testing import ManualClock
from support.front import ADMIN, Front, open_front, served
from support.hooks import Hooks

DEADLINE_S = 30.0
TOPIC = "orders.created"
QUICK = {"poll_s": 0.05, "follow_s": 0.05, "overlap_s": 5.0, "lease_s": 4.0, "timeout_s": 2.0}
COLUMNS = "event_outbox_id, event_type, payload, action, resource, attributes, correlation_id, order_key"


class AppDatabase:
    """The database of an application, on its own blocking connections."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.target = parse_database(url)
        self.kind = self.target.kind
        with self.transaction() as cursor:
            for statement in ddl(self.kind):
                cursor.execute(statement)

    def connect(self) -> Any:
        match self.kind:
            case OutboxDatabase.POSTGRESQL:
                import psycopg

                return psycopg.connect(self.url)
            case OutboxDatabase.MARIADB:
                import pymysql

                target = self.target
                return pymysql.connect(
                    host=target.host,
                    port=target.port,
                    user=target.user,
                    password=target.password,
                    database=target.path,
                    charset="utf8mb4",
                )
            case OutboxDatabase.SQLITE:
                connection: Any = newest_sqlite().connect(self.target.path, timeout=30)
                connection.execute("pragma journal_mode = wal")
                return connection

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor whose work is committed at the end."""
        connection = self.connect()
        try:
            yield connection.cursor()
            connection.commit()
        finally:
            connection.close()

    def insert(
        self, cursor: Any, *, payload: str | bytes | None = None, event_id: str | None = None, **more: Any
    ) -> str:
        """Write an event as an application does; its id."""
        event_id = event_id or new_id(datetime.now(UTC), os.urandom(10))
        values = {
            "event_outbox_id": event_id,
            "event_type": TOPIC,
            "payload": payload or json.dumps({"message": "Pump 3 stopped", "service": "pump-3"}),
            **more,
        }
        mark = "?" if self.kind is OutboxDatabase.SQLITE else "%s"
        marks = ", ".join(mark for _ in values)
        cursor.execute(f"insert into event_outbox ({', '.join(values)}) values ({marks})", tuple(values.values()))
        return event_id

    def add(self, count: int = 1, **more: Any) -> list[str]:
        """Events, each in a transaction of its own."""
        ids = []
        for _ in range(count):
            with self.transaction() as cursor:
                ids.append(self.insert(cursor, **more))
        return ids

    def execute(self, sql: str) -> None:
        with self.transaction() as cursor:
            cursor.execute(sql)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    def row(self, event_id: str, columns: str = "status") -> tuple[Any, ...]:
        [found] = self.query(f"select {columns} from event_outbox where event_outbox_id = '{event_id}'")
        return found

    def statuses(self) -> dict[str, int]:
        return {row[0]: int(row[1]) for row in self.query("select status, count(*) from event_outbox group by status")}

    def is_writable(self) -> bool:
        """Whether no transaction holds the lock of SQLite's single writer; other databases have no such lock."""
        if self.kind is not OutboxDatabase.SQLITE:
            return True
        sqlite = newest_sqlite()
        connection: Any = sqlite.connect(self.target.path, timeout=0)
        try:
            connection.execute("begin immediate")
        except sqlite.OperationalError:
            return False
        finally:
            connection.close()
        return True

    async def until(self, holds: Callable[[], object], seconds: float = DEADLINE_S) -> None:
        """Wait until this holds; fail with the rows if it does not in time."""
        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(holds):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            columns = "event_outbox_id, status, retries, published_at, due_at, claim_token, lease_until, last_error"
            rows = self.query(f"select {columns} from event_outbox order by created_at limit 5")
            pytest.fail(f"{self.statuses()}, such as {rows}")

    async def until_status(self, status: str, ids: Sequence[str], seconds: float = DEADLINE_S) -> None:
        await self.until(lambda: all(self.row(one) == (status,) for one in ids), seconds)


class Relaying:
    """A central that serves HTTP, an application with a token, and relays on this event loop."""

    def __init__(self, app: AppDatabase, front: Front, url: str, token_file: Path) -> None:
        self.app = app
        self.front = front
        self.url = url
        self.token_file = token_file
        self.hooks = Hooks(front.centre, front.clock)

    def options(self, **more: Any) -> RelayOptions:
        given = {**QUICK, "database": self.app.url, "url": self.url, "token_file": str(self.token_file), **more}
        return RelayOptions(**given)

    @asynccontextmanager
    async def running(self, **more: Any) -> AsyncIterator[RelayLoop]:
        """A relay, stopped in order at the end."""
        relay = RelayLoop(self.options(**more), sqlite=newest_sqlite())
        stopping = asyncio.Event()
        task = asyncio.create_task(relay.run(stopping))
        try:
            yield relay
        finally:
            stopping.set()
            async with asyncio.timeout(DEADLINE_S):
                await task

    async def events(self) -> list[str]:
        """The ids of the events at central."""
        return [str(row[0]) for row in await self.front.centre.rows("select event_id from events order by event_id")]

    async def deliver(self) -> None:
        await self.front.centre.deliver()


@asynccontextmanager
async def open_relaying(app: AppDatabase, store_url: str, folder: Path) -> AsyncIterator[Relaying]:
    """Central on this store, with the topic of the application's events and a token of role publisher."""
    from fieldpost.central.store.events import topics

    async with open_front(store_url, ManualClock()) as front, served(front.app) as url:
        token_file = folder / "token"
        token_file.write_text((await front.operate.tokens.add(ADMIN, "shop", Role.PUBLISHER, owner="viewer")).token)
        await front.centre.store.write(topics.add, Topic(name=TOPIC), front.clock.now())
        yield Relaying(app, front, url, token_file)
