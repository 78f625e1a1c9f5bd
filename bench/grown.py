"""A central store with a year of data, built once by set-based SQL, kept outside the tree and shared.

Most rows are delivered, spread over 410 days, so that one in nine is older than a retention of a year. The live part is
independent of the history: 20,000 pending or retrying (one in ten held), 10,000 parked, 3,000 delivered within the last
minute; 200 sites, 100 lists. Each row has a target, about three audit entries and, if attempted, an attempt. All rows
are indexed for search as the leader does it, a thousand at a time. Time is frozen at `GrownStore.now`, when it was
built.

Stores are kept in the folder FIELDPOST_BENCH_FOLDER, or in the temporary folder: about 4 GB per million rows for both
kinds. A change of the tables or of the filling code rebuilds them.
"""

import asyncio
import inspect
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import asyncpg
from sqlalchemy import Connection, Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, DropIndex

from bench import grown_beside
from bench.material import BODY, add_lists
from bench.stores import PostgresServer
from fieldpost.central.store.engine.database_url import open_store, parse_url
from fieldpost.central.store.engine.sqlite_store import sqlite_module
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.migrate import schema_of, upgrade_async
from fieldpost.central.store.schema.notification_tables import notifications
from fieldpost.central.store.schema.tables import metadata
from fieldpost.central.store.search import terms
from fieldpost.core.times import from_microseconds, to_microseconds

DAY_US = 86_400_000_000
SPAN_DAYS = 410
RETENTION_DAYS = 365
LIVE, PARKED, JUST_DELIVERED = 20_000, 10_000, 30_000
SITES = 200
SWEEP = 1000
"""Rows indexed for search per batch."""
RARE = 250_000
"""One row in this many has the rare word in its subject."""
BUILT = "built"
FOLDER = "FIELDPOST_BENCH_FOLDER"
BY_HAND = {
    "site": "source_site_id = 'site-7'",
    "list": "list_name = 'ops7'",
    "rare": "subject like '%flood%'",
    "common": "subject like '%stopped%'",
}
"""Search values, each with its own term in the table `by_hand`."""


@dataclass(frozen=True)
class GrownStore:
    url: str
    now: datetime
    rows: int


class Grown:
    """Grown stores with one number of rows, of either kind."""

    def __init__(self, rows: int, postgres: "KeptServer", folder: Path) -> None:
        self.rows = rows
        self._postgres = postgres
        self._folder = folder

    async def build(self, kind: str) -> GrownStore:
        """The shared store, built on first use. Read only: to change it, use `copy`."""
        name = f"grown{self.rows}"
        url = f"sqlite:///{self._folder / name}.db" if kind == "sqlite" else self._postgres.url(name)
        mark = self._folder / f"{name}.{kind}.{BUILT}"
        if not mark.exists():
            await self._remove(kind, name)
            if kind == "postgresql":
                await self._postgres.execute(f"create database {name}")
            now = datetime.now(UTC)
            await _build(url, self.rows, now)
            mark.write_text(str(to_microseconds(now)))
        await _migrate(url)
        found = GrownStore(url, from_microseconds(int(mark.read_text())), self.rows)
        beside, wanted = self._folder / f"{name}.{kind}.beside", _beside()
        if not beside.exists() or beside.read_text() != wanted:
            await _put_beside(found)
            beside.write_text(wanted)
        return found

    @asynccontextmanager
    async def copy(self, kind: str) -> AsyncIterator[GrownStore]:
        """A temporary copy to modify."""
        kept = await self.build(kind)
        name = f"copy{self.rows}"
        await self._remove(kind, name)
        if kind == "sqlite":
            url = f"sqlite:///{self._folder / name}.db"
            await asyncio.to_thread(shutil.copyfile, parse_url(kept.url).database or "", parse_url(url).database or "")
        else:
            url = self._postgres.url(name)
            await self._postgres.execute(f"create database {name} template grown{self.rows}")
        try:
            yield GrownStore(url, kept.now, kept.rows)
        finally:
            await self._remove(kind, name)

    async def _remove(self, kind: str, name: str) -> None:
        if kind == "postgresql":
            await self._postgres.execute(f"drop database if exists {name} with (force)")
            return
        for file in self._folder.glob(f"{name}.db*"):
            file.unlink()


@contextmanager
def grown(rows: int) -> Iterator[Grown]:
    """Folder of the grown stores; its name depends on the filling code, so that a change rebuilds them."""
    place = Path(os.environ.get(FOLDER) or Path(tempfile.gettempdir()) / "fieldpost-bench")
    folder = place / _filling()
    folder.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)
    folder.chmod(0o755)
    with KeptServer(folder / "postgres") as postgres:
        yield Grown(rows, postgres, folder)


class KeptServer(PostgresServer):
    """A durable PostgreSQL server whose cluster survives a stop."""

    def __init__(self, folder: Path) -> None:
        super().__init__(durable=True)
        self.folder.rmdir()
        self.folder = folder
        self.data = folder / "data"

    def __enter__(self) -> "KeptServer":
        if not self.data.exists():
            self.folder.mkdir(exist_ok=True)
            self.make_cluster()
        self.start()
        return self

    def remove(self) -> None:
        self.stop(signal.SIGINT)

    async def execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


def _filling() -> str:
    """Digest of everything the content depends on."""
    ways = [inspect.getsource(way) for way in (_statements, _index)]
    numbers = (SPAN_DAYS, RETENTION_DAYS, LIVE, PARKED, JUST_DELIVERED, SITES, SWEEP, RARE, BODY[:200])
    return sha256("".join([*ways, str(numbers)]).encode()).hexdigest()[:12]


def _beside() -> str:
    """Digest of everything the content of the smaller tables depends on."""
    return sha256(inspect.getsource(grown_beside).encode()).hexdigest()


async def _put_beside(kept: GrownStore) -> None:
    """Fill the tables beside the notifications, replacing the rows of an earlier version."""
    if kept.url.startswith("sqlite"):
        connection = sqlite_module.connect(parse_url(kept.url).database, isolation_level=None)
        for statement in ("begin", *grown_beside.statements(grown_beside.SQLITE, kept.now), "commit"):
            connection.execute(statement)
        connection.close()
    else:
        connected = await asyncpg.connect(kept.url)
        async with connected.transaction():
            for statement in grown_beside.statements(grown_beside.POSTGRESQL, kept.now):
                await connected.execute(statement)
        await connected.close()
    await _settle(kept.url)


async def _migrate(url: str) -> None:
    """Migrate the schema and update statistics of new indexes."""
    store = open_store(url)
    schema = await store.read(schema_of)
    await store.close()
    if schema.current != schema.wanted:
        await upgrade_async(url)
        await _settle(url)


async def _build(url: str, rows: int, now: datetime) -> None:
    await upgrade_async(url)
    store = open_store(url)
    await add_lists(store)
    await store.close()
    await _fill(url, rows, now)
    store = open_store(url)
    cursor: tuple[datetime, str] | None = (from_microseconds(0), "00000000-0000-1000-8000-000000000000")
    while cursor is not None:
        cursor = await store.write(_index, cursor)
    await store.close()
    await _settle(url)


_behind = Statement(
    """
    select notification_id, created_at, type, list_name, source_site_id, subject from notifications
    where (created_at, notification_id) > (:at, :id) order by created_at, notification_id limit :limit
    """,
    result={name: notifications.c[name].type for name in ("notification_id", "created_at")},
)


def _index(conn: Connection, after: tuple[datetime, str]) -> tuple[datetime, str] | None:
    """Index some thousand rows after this position, SWEEP at a time; return the new position."""
    found = _behind.run(conn, at=after[0], id=after[1], limit=50 * SWEEP)
    for at in range(0, len(found), SWEEP):
        some = found[at : at + SWEEP]
        terms._add(conn, terms._chunks_of(some, at))
    return (found[-1].created_at, found[-1].notification_id) if found else None


async def _fill(url: str, rows: int, now: datetime) -> None:
    if url.startswith("sqlite"):
        script = _script(_SQLITE, sqlite.dialect(), rows, now)
        connection = sqlite_module.connect(parse_url(url).database, isolation_level=None)
        for statement in ("pragma journal_mode = off", "pragma synchronous = off", "begin", *script, "commit"):
            connection.execute(statement)
        connection.close()
        return
    connection = await asyncpg.connect(url)
    # Skip the foreign key check per row.
    await connection.execute("set session_replication_role = replica")
    await connection.execute("set maintenance_work_mem = '1GB'")
    for statement in _script(_POSTGRESQL, postgresql.dialect(), rows, now):
        await connection.execute(statement)
    await connection.close()


async def _settle(url: str) -> None:
    """Vacuum and analyze."""
    if url.startswith("sqlite"):
        connection = sqlite_module.connect(parse_url(url).database, isolation_level=None)
        connection.execute("analyze")
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        return
    connection = await asyncpg.connect(url)
    for statement in ("vacuum (analyze)", "checkpoint"):
        await connection.execute(statement)
    await connection.close()


def _script(d: "_Dialect", dialect: Dialect, rows: int, now: datetime) -> Iterator[str]:
    indexes = [index for table in metadata.sorted_tables for index in table.indexes]
    yield from (str(DropIndex(index).compile(dialect=dialect)) for index in indexes)
    yield from _statements(d, rows, to_microseconds(now))
    yield from (str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)


@dataclass(frozen=True)
class _Dialect:
    """SQL that differs between the databases; `{}` is the argument."""

    numbers: str
    """The numbers 1 to n as a table with the column n."""
    moment: str
    """A timestamp from microseconds."""
    id: str
    digest: str
    event: str
    columns: tuple[str, str, str]


_POSTGRESQL = _Dialect(
    numbers="generate_series(cast(1 as bigint), {}) as n",
    moment="to_timestamp(({}) / 1e6)",
    id="cast(lpad(to_hex(p1), 12, '0') || '7' || lpad(to_hex(p2), 3, '0') || lpad(to_hex(p3), 4, '0')"
    " || lpad(to_hex(p4), 12, '0') as uuid)",
    digest="sha256(cast(cast(n as text) as bytea))",
    event="cast(overlay(cast(n.notification_id as text) placing e.mark from 20) as uuid)",
    columns=("timestamptz", "uuid", ""),
)
_SQLITE = _Dialect(
    numbers="(with recursive c(n) as (select 1 union all select n + 1 from c where n < {}) select n from c)",
    moment="({})",
    id="printf('%08x-%04x-7%03x-%04x-%012x', p1 >> 16, p1 & 65535, p2, p3, p4)",
    digest="cast(printf('%032x', n) as blob)",
    event="substr(n.notification_id, 1, 19) || e.mark || substr(n.notification_id, 21)",
    columns=("integer", "text", " without rowid"),
)


def _statements(d: _Dialect, rows: int, now: int) -> Iterator[str]:
    """Row 1 is the oldest. The last LIVE rows are live and were created within the last two hours; the JUST_DELIVERED
    before them were delivered within the last ten minutes; the rest is spread evenly.
    """
    live, just = rows - LIVE, rows - LIVE - JUST_DELIVERED
    step = SPAN_DAYS * DAY_US // rows
    created, ended, retried = d.moment.format("at"), d.moment.format("at + 1000"), d.moment.format("at + 60000000")
    old = d.moment.format(now - RETENTION_DAYS * DAY_US)
    yield f"""
        insert into notifications (notification_id, type, list_name, subject, body, status, retry_count, last_error,
            source_site_id, source_script, created_at, last_attempt_at, next_attempt_at, delivered_at, terminal_at,
            due_at, delivery_key, held_by, held_reason, claim_token, cycle_started_at, digest)
        select {d.id}, 'email', 'ops' || (n % 100),
            'Pump ' || (n % 97) || case n % 4 when 0 then ' pressure low' when 1 then ' stopped'
                when 2 then ' temperature high' else ' vibration' end
                || case when n % {RARE} = 17 then ' flood' else '' end,
            '{BODY[:200]}', status, case status when 'retrying' then 1 else 0 end,
            case when status in ('retrying', 'parked', 'discarded') then '45' || (n % 10) || ' try again later' end,
            'site-' || (n % {SITES}), 'watch.py', {created}, case when status <> 'pending' then {ended} end,
            case when status = 'retrying' then {retried} end, case when status = 'delivered' then {ended} end,
            case when status in ('delivered', 'parked', 'discarded') then {ended} end,
            case status when 'pending' then {d.moment.format(f"{now} - n % 60 * 1000000")}
                when 'retrying' then {retried} end,
            'list:ops' || (n % 100), case when is_held then 'channel:mail' end, case when is_held then 'connect' end,
            case when status <> 'pending' then 1 else 0 end, {created}, {d.digest}
        from (
            select n, at, status, status in ('pending', 'retrying') and n % 10 = 0 as is_held, at / 1000 as p1,
                n * 2654435761 % 4096 as p2, 32768 + n * 40503 % 4096 as p3, n * 11400714819 % 281474976710656 as p4
            from (
                select n, {now} - case when n > {live} then ({rows} - n) * 360000 + 1000000
                        when n > {just} then ({live} - n) * 20000 + 1000
                        else ({rows} - n) * {step} + 3600000000 end as at,
                    case when n > {live} then case n % 4 when 0 then 'retrying' else 'pending' end
                        when n > {just} then 'delivered'
                        when n > {just - 10 * PARKED} and n % 10 = 0 then 'parked'
                        when n % 100 = 1 then 'discarded' else 'delivered' end as status
                from {d.numbers.format(rows)}
            ) as numbered
        ) as made
    """
    yield """
        insert into targets (notification_id, address, status, error, settled_at)
        select notification_id, list_name || '@plant.example',
            case when terminal_at is null then 'due' when status = 'delivered' then 'delivered' else 'failed' end,
            case when status in ('parked', 'discarded') then last_error end, terminal_at
        from notifications where claim_token > 0
    """
    yield """
        insert into attempts (notification_id, claim_token, cycle, node_id, started_at, finished_at, outcome,
            duration_ms)
        select notification_id, 1, 1, 'node', created_at, last_attempt_at,
            case status when 'delivered' then 'delivered' when 'retrying' then 'transient_failure'
                else 'permanent_failure' end, 12
        from notifications where claim_token > 0
    """
    yield """
        insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id,
            source_script, actor, target)
        select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
            source_site_id, source_script, source_script, list_name
        from notifications
    """
    yield f"""
        insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id,
            source_node, actor, target, duration_ms)
        select {d.event}, terminal_at, terminal_at, notification_id, 'notification', 'notify_deliver',
            case e.mark when 'a' then 'attempted' when 'b' then
                case n.status when 'delivered' then 'delivered' else 'parked' end end,
            source_site_id, 'node', 'system', list_name, 12
        from notifications n
        cross join (select 'a' as mark union all select 'b') as e
        where terminal_at is not null
    """
    yield f"""
        insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id,
            actor, target, request_summary)
        select {d.event}, terminal_at, terminal_at, notification_id, 'notification', 'operator_action', 'discarded',
            source_site_id, case when created_at < {old} then 'anna' else 'bert' end, list_name, 'discard'
        from notifications n cross join (select '9' as mark) as e
        where status = 'discarded'
    """
    # Indexes for the reference: the best possible one for each query.
    moment, id_type, ending = d.columns
    yield f"""
        create table by_hand (term text, created_at {moment}, notification_id {id_type},
            primary key (term, created_at, notification_id)){ending}
    """
    for term, condition in BY_HAND.items():
        yield f"""
            insert into by_hand (term, created_at, notification_id)
            select '{term}', created_at, notification_id from notifications where {condition}
        """
    yield f"""
        insert into sites (site_name, created_at) select 'site-' || (n - 1), {d.moment.format(now - step)}
        from {d.numbers.format(SITES)}
    """
