"""A central store that has grown for a year, built once by set-based SQL, kept in the temporary folder and shared.

Of the rows most are delivered, spread over 405 days so that one in ten is past a retention of a year. What is alive
does not grow with history: 20,000 are pending or retrying (one in ten of them held), 10,000 parked, 3,000 were
delivered within the last minute; 200 sites, 100 lists. Each row has a target and, once tried, an attempt; those past
the retention have their audit entries too. The table's time stands still at `GrownStore.now`, when it was built.
"""

import asyncio
import inspect
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
from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex

from bench.material import BODY, add_lists
from bench.stores import PostgresServer
from fieldpost.central.store.engine import open_store, parse_url, sqlite_module
from fieldpost.central.store.migrate import upgrade_async
from fieldpost.central.store.tables import metadata
from fieldpost.core.times import from_microseconds, to_microseconds

DAY_US = 86_400_000_000
SPAN_DAYS = 405
RETENTION_DAYS = 365
LIVE, PARKED, JUST_DELIVERED = 20_000, 10_000, 30_000
SITES = 200
BUILT = "built"


@dataclass(frozen=True)
class GrownStore:
    url: str
    now: datetime
    rows: int


class Grown:
    """Grown stores of one number of rows, of either kind."""

    def __init__(self, rows: int, postgres: "KeptServer", folder: Path) -> None:
        self.rows = rows
        self._postgres = postgres
        self._folder = folder

    async def build(self, kind: str) -> GrownStore:
        """The kept one; it is built first where there is none. Nothing may change it: see `copy`."""
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
        return GrownStore(url, from_microseconds(int(mark.read_text())), self.rows)

    @asynccontextmanager
    async def copy(self, kind: str) -> AsyncIterator[GrownStore]:
        """A copy to work on, gone afterwards."""
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
    """Where grown stores are kept: one place for each schema, so that a change of it builds them anew."""
    folder = Path(tempfile.gettempdir()) / f"fieldpost-bench-{_schema()}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    with KeptServer(folder / "postgres") as postgres:
        yield Grown(rows, postgres, folder)


class KeptServer(PostgresServer):
    """A durable PostgreSQL server whose cluster stays when it stops."""

    def __init__(self, folder: Path) -> None:
        super().__init__(durable=True)
        self.folder.rmdir()
        self.folder = folder
        self.data = folder / "data"

    def __enter__(self) -> "KeptServer":
        if not self.data.exists():
            self.folder.mkdir(exist_ok=True)
            self._make_cluster()
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


def _schema() -> str:
    made = [str(CreateTable(table)) for table in metadata.sorted_tables]
    made += [str(CreateIndex(index)) + str(index.dialect_kwargs) for t in metadata.sorted_tables for index in t.indexes]
    return sha256("".join([*sorted(made), inspect.getsource(_statements)]).encode()).hexdigest()[:12]


async def _build(url: str, rows: int, now: datetime) -> None:
    await upgrade_async(url)
    store = open_store(url)
    await add_lists(store)
    await store.close()
    if url.startswith("sqlite"):
        script = _script(_SQLITE, sqlite.dialect(), rows, now)
        connection = sqlite_module.connect(parse_url(url).database, isolation_level=None)
        for statement in ("pragma journal_mode = off", "pragma synchronous = off", "begin", *script, "commit"):
            connection.execute(statement)
        connection.execute("analyze")
        connection.execute("pragma journal_mode = wal")
        connection.close()
        return
    connection = await asyncpg.connect(url)
    # No look for the parent of each row.
    await connection.execute("set session_replication_role = replica")
    await connection.execute("set maintenance_work_mem = '1GB'")
    for statement in (*_script(_POSTGRESQL, postgresql.dialect(), rows, now), "vacuum (analyze)", "checkpoint"):
        await connection.execute(statement)
    await connection.close()


def _script(d: "_Dialect", dialect: Dialect, rows: int, now: datetime) -> Iterator[str]:
    indexes = [index for table in metadata.sorted_tables for index in table.indexes]
    yield from (str(DropIndex(index).compile(dialect=dialect)) for index in indexes)
    yield from _statements(d, rows, to_microseconds(now))
    yield from (str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)


@dataclass(frozen=True)
class _Dialect:
    """What the two databases say differently; `{}` is where the argument goes."""

    numbers: str
    """1 to so many, as a table with the column n."""
    moment: str
    """A moment, from microseconds."""
    id: str
    digest: str
    event: str


_POSTGRESQL = _Dialect(
    numbers="generate_series(cast(1 as bigint), {}) as n",
    moment="to_timestamp(({}) / 1e6)",
    id="cast(lpad(to_hex(p1), 12, '0') || '7' || lpad(to_hex(p2), 3, '0') || lpad(to_hex(p3), 4, '0')"
    " || lpad(to_hex(p4), 12, '0') as uuid)",
    digest="sha256(cast(cast(n as text) as bytea))",
    event="cast(overlay(cast(n.notification_id as text) placing e.mark from 20) as uuid)",
)
_SQLITE = _Dialect(
    numbers="(with recursive c(n) as (select 1 union all select n + 1 from c where n < {}) select n from c)",
    moment="({})",
    id="printf('%08x-%04x-7%03x-%04x-%012x', p1 >> 16, p1 & 65535, p2, p3, p4)",
    digest="cast(printf('%032x', n) as blob)",
    event="substr(n.notification_id, 1, 19) || e.mark || substr(n.notification_id, 21)",
)


def _statements(d: _Dialect, rows: int, now: int) -> Iterator[str]:
    """Row 1 is the oldest. The last LIVE are alive and were made within the last two hours; the JUST_DELIVERED before
    them were delivered within the last ten minutes; the rest lies evenly over the span."""
    live, just = rows - LIVE, rows - LIVE - JUST_DELIVERED
    step = SPAN_DAYS * DAY_US // rows
    created, ended, retried = d.moment.format("at"), d.moment.format("at + 1000"), d.moment.format("at + 60000000")
    old = d.moment.format(now - RETENTION_DAYS * DAY_US)
    yield f"""
        insert into notifications (notification_id, type, list_name, subject, body, status, retry_count, last_error,
            source_site_id, source_script, created_at, last_attempt_at, next_attempt_at, delivered_at, terminal_at,
            due_at, delivery_key, held_by, held_reason, claim_token, cycle_started_at, digest)
        select {d.id}, 'email', 'ops' || (n % 100),
            'Pump ' || n || case n % 4 when 0 then ' pressure low' when 1 then ' stopped'
                when 2 then ' temperature high' else ' vibration' end,
            '{BODY[:200]}', status, case status when 'retrying' then 1 else 0 end,
            case when status in ('retrying', 'parked', 'discarded') then '45' || (n % 10) || ' try again later' end,
            'site-' || (n % {SITES}), 'watch.py', {created}, case when status <> 'pending' then {ended} end,
            case when status = 'retrying' then {retried} end, case when status = 'delivered' then {ended} end,
            case when status in ('delivered', 'parked', 'discarded') then {ended} end,
            case status when 'pending' then {d.moment.format(f"{now} + n % 60 * 1000000")}
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
    yield f"""
        insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id,
            source_script, actor, target)
        select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
            source_site_id, source_script, source_script, list_name
        from notifications where terminal_at < {old} or terminal_at is null
    """
    yield f"""
        insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id,
            source_node, actor, target, duration_ms)
        select {d.event}, terminal_at, terminal_at, notification_id, 'notification', 'notify_deliver', e.status,
            source_site_id, 'node', 'system', list_name, 12
        from notifications n
        cross join (select 'attempted' as status, 'a' as mark union all select 'delivered', 'b') as e
        where terminal_at < {old}
    """
    yield f"""
        insert into sites (site_name, created_at) select 'site-' || (n - 1), {d.moment.format(now - step)}
        from {d.numbers.format(SITES)}
    """
