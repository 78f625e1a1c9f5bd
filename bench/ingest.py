"""`ingest`: batches of 500 into the store: insert if absent, audit entry, ack.

Reference: the same two rows per notification by a raw `unnest` insert over asyncpg (PostgreSQL) or a raw `executemany`
(SQLite), one commit per batch, one connection. Ours: `Ingest.submit`, one batch after the other.

`ingest single`, PostgreSQL: one notification per submit, each site waits for its ack before the next; many sites at
once, as in a storm of alarms. Reference: plain connections that insert the same two rows by one statement, 16 for 16
sites and 64 for 200, since no server has a connection for every site. Ours has at most 10 connections; submits that
wait share a transaction (ADR 0023 has figures).

`ingest of lists`: submissions to a list of five lists, counted in rows. Reference: `Ingest.submit` of as many
notifications to ordinary lists. Target: 0.5.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import sha256

import asyncpg
from msgspec import structs

from bench.harness import Figure, Report, Stopwatch, compare
from bench.material import add_lists, items
from bench.stores import Stores
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_module
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists
from fieldpost.clock import SystemClock
from fieldpost.core.ids import new_ids
from fieldpost.core.lists import NotificationList
from fieldpost.core.times import to_microseconds
from fieldpost.link.messages import Item, Submit

BATCH = 500
SINGLE = ((16, 16), (200, 64))
"""Sites that submit single notifications, and the plain connections to compare them with."""


async def run(report: Report, stores: Stores, quick: bool) -> None:
    for kind in ("sqlite", "postgresql"):
        async with stores.open(kind) as store:
            await add_lists(store)
            batches = 4 if quick else 12
            raw = RawSqlite(store.url) if kind == "sqlite" else await RawPostgres.connect(store.url)

            async def ours(store: Store = store, batches: int = batches) -> float:
                ingest = Ingest(store, SystemClock())
                submits = [Submit(number, items(BATCH)) for number in range(batches)]
                watch = Stopwatch()
                for submit in submits:
                    ack = await ingest.submit("plant", submit)
                    assert {result.verdict for result in ack.results} == {"accepted"}
                return watch.rate(batches * BATCH)

            async def reference(raw: "RawSqlite | RawPostgres" = raw, batches: int = batches) -> float:
                made = [items(BATCH) for _ in range(batches)]
                watch = Stopwatch()
                for batch in made:
                    await raw.insert(batch)
                return watch.rate(batches * BATCH)

            notes = f"batches of {BATCH}, one connection, row + audit entry"
            report.add(await compare(f"ingest {kind}", ours, reference, 5, "rows/s", notes))
            await raw.close()
            report.add(await compare_lists(store, kind, 2 if quick else 6))
            if kind == "postgresql":
                for sites, connections in SINGLE:
                    report.add(await compare_single(store, sites, connections, 1_600 if quick else 8_000))


async def compare_lists(store: Store, kind: str, batches: int) -> Figure:
    """A list of five lists against ordinary lists, in rows."""
    named = tuple(f"ops{number}" for number in range(5))
    await store.write(lists.add_list, NotificationList("whole", "lists", targets=named), datetime.now(UTC))
    ingest = Ingest(store, SystemClock())

    async def rate(made: list[tuple[Item, ...]]) -> float:
        watch = Stopwatch()
        for number, batch in enumerate(made):
            ack = await ingest.submit("plant", Submit(number, batch))
            assert {result.verdict for result in ack.results} == {"accepted"}
        return watch.rate(batches * BATCH)

    async def ours() -> float:
        small = [items(BATCH // len(named)) for _ in range(batches)]
        return await rate([tuple(structs.replace(item, list_name="whole") for item in batch) for batch in small])

    async def reference() -> float:
        return await rate([items(BATCH) for _ in range(batches)])

    notes = f"{BATCH // len(named)} submissions a batch; reference: batches of {BATCH} to ordinary lists"
    return await compare(f"ingest of lists {kind}", ours, reference, 5, "rows/s", notes)


async def compare_single(store: Store, sites: int, connections: int, rows: int) -> Figure:
    """Single submits of many sites against plain connections with single rows."""
    ingest = Ingest(store, SystemClock())
    raws = [await RawPostgres.connect(store.url) for _ in range(connections)]

    async def submit(site: int, item: Item) -> None:
        ack = await ingest.submit(f"plant-{site}", Submit(1, (item,)))
        assert ack.results[0].verdict == "accepted"

    async def insert(connection: int, item: Item) -> None:
        await raws[connection].insert_one(item)

    async def rate(senders: int, send: Callable[[int, Item], Awaitable[None]]) -> float:
        async def one_after_another(sender: int, own: tuple[Item, ...]) -> None:
            for item in own:
                await send(sender, item)

        made = [items(rows // senders) for _ in range(senders)]
        watch = Stopwatch()
        await asyncio.gather(*(one_after_another(*pair) for pair in enumerate(made)))
        return watch.rate(rows // senders * senders)

    async def ours() -> float:
        return await rate(sites, submit)

    async def reference() -> float:
        return await rate(connections, insert)

    notes = f"one notification per submit; reference: {connections} connections"
    figure = await compare(f"ingest single, {sites} sites", ours, reference, 5, "rows/s", notes)
    for raw in raws:
        await raw.close()
    return figure


class RawPostgres:
    """Reference: two statements in one transaction, arrays and unnest."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, url: str) -> "RawPostgres":
        return cls(await asyncpg.connect(url))

    async def insert(self, batch: tuple[Item, ...]) -> None:
        now = datetime.now(UTC)
        events = new_ids(now, os.urandom(10 * len(batch)))
        async with self._connection.transaction():
            await self._connection.execute(
                """
                insert into notifications (notification_id, type, list_name, subject, body, source_site_id,
                    source_script, delivery_key, digest, status, created_at, due_at, cycle_started_at)
                select id, 'email', list, subject, body, 'plant', script, key, digest, 'pending', $1, $1, $1
                from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])
                    as u(id, list, subject, body, script, key, digest)
                on conflict do nothing
                """,
                now,
                [item.notification_id for item in batch],
                [item.list_name for item in batch],
                [item.subject for item in batch],
                [item.body for item in batch],
                [item.script for item in batch],
                [f"list:{item.list_name}" for item in batch],
                [sha256(f"{item.subject}{item.body}".encode()).digest() for item in batch],
            )
            await self._connection.execute(
                """
                insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status,
                    source_site_id, source_script, actor, target)
                select event, $1, $1, id, 'notification', 'notify_send', 'submitted', 'plant', script, script, list
                from unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[]) as u(event, id, script, list)
                """,
                now,
                events,
                [item.notification_id for item in batch],
                [item.script for item in batch],
                [item.list_name for item in batch],
            )

    async def insert_one(self, item: Item) -> None:
        """Both rows of one notification by one statement, which commits on its own."""
        now = datetime.now(UTC)
        await self._connection.execute(
            """
            with inserted as (
                insert into notifications (notification_id, type, list_name, subject, body, source_site_id,
                    source_script, delivery_key, digest, status, created_at, due_at, cycle_started_at)
                values ($1, 'email', $2, $3, $4, 'plant', $5, $6, $7, 'pending', $8, $8, $8)
                on conflict do nothing returning notification_id, list_name, source_script
            )
            insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status,
                source_site_id, source_script, actor, target)
            select $9, $8, $8, notification_id, 'notification', 'notify_send', 'submitted', 'plant', source_script,
                source_script, list_name
            from inserted
            """,
            item.notification_id,
            item.list_name,
            item.subject,
            item.body,
            item.script,
            f"list:{item.list_name}",
            sha256(f"{item.subject}{item.body}".encode()).digest(),
            now,
            new_ids(now, os.urandom(10))[0],
        )

    async def close(self) -> None:
        await self._connection.close()


class RawSqlite:
    """Reference: two executemany in one transaction."""

    def __init__(self, url: str) -> None:
        path = parse_url(url).database
        self._connection = sqlite_module.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 30000", "cache_size = -65536"):
            self._connection.execute(f"pragma {pragma}")

    async def insert(self, batch: tuple[Item, ...]) -> None:
        moment = datetime.now(UTC)
        now = to_microseconds(moment)
        events = new_ids(moment, os.urandom(10 * len(batch)))
        self._connection.execute("begin immediate")
        self._connection.executemany(
            """
            insert into notifications (notification_id, type, list_name, subject, body, source_site_id, source_script,
                delivery_key, digest, status, created_at, due_at, cycle_started_at)
            values (?, 'email', ?, ?, ?, 'plant', ?, ?, ?, 'pending', ?, ?, ?) on conflict do nothing
            """,
            [
                (
                    i.notification_id,
                    i.list_name,
                    i.subject,
                    i.body,
                    i.script,
                    f"list:{i.list_name}",
                    sha256(f"{i.subject}{i.body}".encode()).digest(),
                    now,
                    now,
                    now,
                )
                for i in batch
            ],
        )
        self._connection.executemany(
            """
            insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status,
                source_site_id, source_script, actor, target)
            values (?, ?, ?, ?, 'notification', 'notify_send', 'submitted', 'plant', ?, ?, ?)
            """,
            [
                (event, now, now, i.notification_id, i.script, i.script, i.list_name)
                for event, i in zip(events, batch, strict=True)
            ],
        )
        self._connection.execute("commit")

    async def close(self) -> None:
        self._connection.close()
