"""The relay's part of `outbox`: drain, claims beside many SENT rows, latency from commit to ack, memory.

Central and relay are processes of their own; application and central use the same kind of database, each its own. The
reference of the drain is `Ingest.submit` in the same run, batches of 500. The reference of a claim is the same claim on
a table without SENT rows; its ratio is the time of the reference by ours.
"""

import asyncio
import itertools
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from bench.harness import Figure, Report, Stopwatch, compare, percentile
from bench.material import add_lists, items
from bench.stores import Stores
from fieldpost.central.ingest.submit import Ingest
from fieldpost.clock import SystemClock
from fieldpost.link.messages import Submit
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.relay import open_database
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.outbox.relay.transactions import OutboxTransactions
from fieldpost.outbox.tables import OutboxDatabase

from support.outbox_apps import TOPIC, AppDatabase  # isort: skip  (bench.stores adds tests/ to the path)
from support.relay_process import RelayProcess  # isort: skip
from support.running_central import RunningCentral  # isort: skip

TOKEN_FILE = "api-token"
_fills = itertools.count()

BATCH = 500
RATE = 200
PAYLOAD = '{"service": 7, "group": "plant", "message": "Service 7 has not answered since 12:00", "checks": [3, 3, 2]}'
KINDS = ("postgresql", "sqlite")


async def run_relay(report: Report, stores: Stores, quick: bool) -> None:
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            async with central(stores, kind, Path(folder)) as (url, token):
                more = {"url": url, "token": token}
                report.add(
                    await _drain(stores, kind, Path(folder), more, 5_000 if quick else 20_000, 2 if quick else 5)
                )
                await _latency(report, stores, kind, Path(folder), more, 4.0 if quick else 20.0)
                if not quick:
                    report.add(await _memory(stores, kind, Path(folder), more))
        report.add(await _claim(stores, kind, 200_000 if quick else 5_000_000))


@asynccontextmanager
async def central(stores: Stores, kind: str, folder: Path) -> AsyncIterator[tuple[str, str]]:
    """A central with the topic; its URL and the token of a publisher."""
    options = {"FIELDPOST_FRONT__ITEMS_PER_S": "1000000", "FIELDPOST_FRONT__BYTES_PER_S": "1000000000"}
    async with RunningCentral(await stores.url(kind), folder / "central", environment=options) as node:
        headers = {"Authorization": f"Bearer {(folder / 'central' / TOKEN_FILE).read_text().strip()}"}
        async with aiohttp.ClientSession(node.url, headers=headers, raise_for_status=True) as api:
            await api.put(f"/api/v1/topics/{TOPIC}", json={})
            answer = await api.post("/api/v1/tokens", json={"name": "shop", "role": "publisher"})
            yield node.url, (await answer.json())["token"]


async def application(stores: Stores, kind: str) -> AppDatabase:
    return await asyncio.to_thread(AppDatabase, await stores.url(kind))


def fill(app: AppDatabase, count: int, status: str = "PENDING") -> None:
    """Rows by one statement, with ids in the order of time, as `Outbox.add` makes them.

    Random ids, which the column's default makes, touch a page of the index each: on SQLite a claim of 500 beside
    200,000 SENT rows then took 5.3 times as long as without them.
    """
    first = f"{0x0198C8A0 + next(_fills):08x}-0000-7000-8000-"
    columns, values = "event_outbox_id, event_type, payload, status", f"'{TOPIC}', '{PAYLOAD}', '{status}'"
    if app.kind is OutboxDatabase.POSTGRESQL:
        app.execute(
            f"insert into event_outbox ({columns}) select cast('{first}' || lpad(cast(n as text), 12, '0') as uuid),"
            f" {values} from generate_series(1, {count}) n"
        )
    else:
        app.execute(
            f"insert into event_outbox ({columns}) with recursive n(n) as (select 1 union all select n + 1 from n where"
            f" n < {count}) select printf('{first}%012d', n), {values} from n"
        )


def options(app: AppDatabase, more: dict[str, Any]) -> RelayOptions:
    return RelayOptions(database=app.url, tasks=False, health_log=False, **more)


async def _drain(stores: Stores, kind: str, folder: Path, more: dict[str, Any], rows: int, rounds: int) -> Figure:
    app = await application(stores, kind)

    async def ours() -> float:
        await asyncio.to_thread(app.execute, "delete from event_outbox")
        await asyncio.to_thread(fill, app, rows)
        async with RelayProcess(options(app, more), folder):
            await app.until(lambda: app.statuses() == {"SENT": rows}, 600)
        seconds = (
            "extract(epoch from max(published_at) - min(published_at))"
            if app.kind is OutboxDatabase.POSTGRESQL
            else "(julianday(max(published_at)) - julianday(min(published_at))) * 86400"
        )
        [(took_s,)] = app.query(f"select {seconds} from event_outbox")
        # The time of the first batch is before the first row is recorded.
        return (rows - BATCH) / float(took_s)

    async with stores.open(kind) as store:
        await add_lists(store)
        ingest = Ingest(store, SystemClock())

        async def reference() -> float:
            submits = [Submit(number, items(BATCH)) for number in range(max(4, rows // BATCH // 4))]
            watch = Stopwatch()
            for submit in submits:
                await ingest.submit("plant", submit)
            return watch.rate(len(submits) * BATCH)

        notes = f"{rows:,} rows, nobody to notify; reference: ingest"
        return await compare(f"outbox drain, {kind}", ours, reference, rounds, "rows/s", notes)


async def _claim(stores: Stores, kind: str, sent: int) -> Figure:
    """Claim 500 of 1,000 open rows and give them back."""
    times: dict[int, list[float]] = {}
    for count in (0, sent):
        app = await application(stores, kind)
        if count:
            await asyncio.to_thread(fill, app, count, "SENT")
            await asyncio.to_thread(fill, app, 1_000)
            await asyncio.to_thread(_analyze, app)
        else:
            await asyncio.to_thread(fill, app, 1_000)
            await asyncio.to_thread(_analyze, app)
        database = open_database(RelayOptions(database=app.url), newest_sqlite())
        transactions = OutboxTransactions(app.kind, "bench")
        times[count] = []
        for _ in range(15):
            watch = Stopwatch()
            rows = await database.run(lambda own=transactions: own.claim(BATCH, 4_000_000, 60.0))
            times[count].append(1 / watch.rate(1))
            assert len(rows) == BATCH
            await asyncio.to_thread(
                app.execute,
                "update event_outbox set status = 'PENDING', lease_until = null where status = 'PROCESSING'",
            )
        await database.close()
    ours, reference = (statistics.median(times[count]) * 1000 for count in (sent, 0))
    spread = (max(times[sent]) - min(times[sent])) * 1000 / ours
    notes = f"claim of {BATCH} beside {sent:,} SENT rows; reference: none; ratio is time by time, at most 1.5"
    return Figure(f"outbox claim, {kind}", ours, "ms", reference, spread, notes)


def _analyze(app: AppDatabase) -> None:
    connection = app.connect()
    if app.kind is OutboxDatabase.POSTGRESQL:
        connection.autocommit = True
        connection.execute("vacuum analyze event_outbox")
    else:
        connection.execute("analyze")
    connection.close()


async def _latency(
    report: Report, stores: Stores, kind: str, folder: Path, more: dict[str, Any], seconds: float
) -> None:
    for has_hint in (True, False) if kind == "postgresql" else (False,):
        app = await application(stores, kind)
        async with RelayProcess(options(app, {**more, "hint": has_hint}), folder):
            await asyncio.to_thread(app.add)
            await app.until(lambda app=app: app.statuses() == {"SENT": 1})
            await asyncio.to_thread(_write_steadily, app, seconds)
            await app.until(lambda app=app: app.statuses().keys() == {"SENT"}, 60)
        waits = (
            "extract(epoch from published_at - created_at)"
            if app.kind is OutboxDatabase.POSTGRESQL
            else "(julianday(published_at) - julianday(created_at)) * 86400"
        )
        found = [float(row[0]) * 1000 for row in app.query(f"select {waits} from event_outbox order by created_at")][1:]
        how = "hint" if has_hint else "polling"
        notes = f"{RATE}/s, {how}, from the INSERT to its record as published; p99 {percentile(found, 0.99):,.0f}"
        report.add(Figure(f"outbox latency p50, {kind}, {how}", percentile(found, 0.5), "ms", notes=notes))


def _write_steadily(app: AppDatabase, seconds: float) -> None:
    clock = SystemClock()
    connection = app.connect()
    began = clock.monotonic()
    for number in range(int(seconds * RATE)):
        app.insert(connection.cursor(), payload=PAYLOAD)
        connection.commit()
        if (ahead := began + (number + 1) / RATE - clock.monotonic()) > 0:
            clock.pause(ahead)
    connection.close()


async def _memory(stores: Stores, kind: str, folder: Path, more: dict[str, Any]) -> Figure:
    app = await application(stores, kind)
    await asyncio.to_thread(fill, app, 1_000_000)
    async with RelayProcess(options(app, more), folder) as relay:
        await app.until(lambda: app.statuses().get("SENT", 0) > 100_000, 300)
        assert relay.process is not None
        status = await asyncio.to_thread(Path(f"/proc/{relay.process.pid}/status").read_text)
    peak_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return Figure(f"outbox relay memory, {kind}", peak_kb / 1024, "MB", notes="peak while draining 1 M open rows")
