"""`dispatch`: drain rows through claim, an adapter that does nothing, decide, and apply with all its rows.

Reference (PostgreSQL): asyncpg by hand that writes the same rows: claim with lease and token + attempt, row by token,
target, attempt's end, two audit entries; two workers with batches of 128, each on its own connection. It walks no keys,
knows no lanes, breakers, policies or late results. Ours: one `Dispatcher` with 256 slots and batches of 128, 100 lists.
Two processes of ours on one PostgreSQL are compared with one, one list with a hundred, and 10,000 keys whose rows are
due later with 100 such keys.

Where a row's time goes: `CPU of a row` is that of our process alone (the objects of the row, its task with its
deadline, its log line, the driver's arrays). PostgreSQL needs about as much again beside it, on the other core: two
processes gain only what two cores have left after that, so compare them on a machine with cores to spare.
"""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime

import asyncpg

from bench.harness import Figure, Report, Stopwatch, compare, log_to_nowhere
from bench.material import LISTS, NoOp, add_lists, items
from bench.stores import Stores
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.clock import SystemClock
from fieldpost.core.ids import new_ids
from fieldpost.link.messages import Submit
from fieldpost.run import gc_tuning

OPTIONS = DispatchOptions(slots=256, batch_size=128)
BATCH = 128


async def run(report: Report, stores: Stores, quick: bool) -> None:
    rows = 4_000 if quick else 20_000
    rounds = 5
    for kind in ("postgresql", "sqlite"):
        async with stores.open(kind) as store:
            await add_lists(store)
            cpu_us: list[float] = []

            async def ours(store: Store = store, cpu_us: list[float] = cpu_us) -> float:
                await fill(store, rows)
                before = time.process_time()
                rate = await drain(store, rows)
                cpu_us.append((time.process_time() - before) / rows * 1e6)
                return rate

            notes = f"{rows:,} rows, 256 slots, 100 lists"
            if kind == "postgresql":

                async def reference(store: Store = store) -> float:
                    await fill(store, rows)
                    return await drain_by_hand(store.url, rows)

                report.add(await compare(f"dispatch {kind}", ours, reference, rounds, "rows/s", notes))
                _add_cpu(report, kind, cpu_us)

                async def of_one_list(store: Store = store) -> float:
                    await fill(store, rows, lists=1)
                    return await drain(store, rows)

                notes = f"{rows:,} rows, 256 slots; reference: the same with 100 lists"
                report.add(await compare("dispatch one list", of_one_list, ours, rounds, "rows/s", notes))
                await compare_two(report, store, rows)
                await compare_keys(report, stores, rows)
            else:
                await ours()
                rates = [await ours() for _ in range(3)]
                report.add(Figure(f"dispatch {kind}", sorted(rates)[1], "rows/s", notes=notes))
                _add_cpu(report, kind, cpu_us)


def _add_cpu(report: Report, kind: str, cpu_us: list[float]) -> None:
    median = statistics.median(cpu_us[1:])  # the first run also loads modules and fills caches
    report.add(Figure(f"dispatch {kind}, CPU of a row", median, "µs", notes="of our process"))


async def fill(store: Store, rows: int, lists: int = LISTS) -> None:
    ingest = Ingest(store, SystemClock())
    for number in range(0, rows, 500):
        await ingest.submit("plant", Submit(number, items(min(500, rows - number), lists)))


async def compare_keys(report: Report, stores: Stores, rows: int) -> None:
    """The drain while 10,000 keys have rows that are due later, compared with 100 such keys."""
    async with stores.open("postgresql") as many, stores.open("postgresql") as few:
        for store, keys in ((many, 10_000), (few, 100)):
            await add_lists(store)
            await fill_later(store.url, keys)

        async def drained(store: Store) -> float:
            await fill(store, rows)
            return await drain(store, rows)

        notes = f"{rows:,} rows; 10,000 lists with rows due later; reference: 100 such lists"
        figure = await compare(
            "dispatch 10,000 keys due later", lambda: drained(many), lambda: drained(few), 5, "rows/s", notes
        )
        report.add(figure)


async def fill_later(url: str, keys: int) -> None:
    """Two rows per key that wait for their next attempt, in an hour."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        """
        insert into notifications (notification_id, type, list_name, subject, body, source_site_id, delivery_key,
            digest, status, created_at, due_at, next_attempt_at, cycle_started_at, last_error, retry_count, is_timed)
        select gen_random_uuid(), 'email', 'later-' || n % $1, 'Pump 3 stopped', 'No flow.', 'plant',
            'list:later-' || n % $1, 'x', 'retrying', now(), now() + interval '1 hour', now() + interval '1 hour',
            now(), 'no answer', 1, true
        from generate_series(1, 2 * $1) n
        """,
        keys,
    )
    await connection.execute("analyze notifications")
    await connection.close()


async def drain(store: Store, rows: int) -> float:
    adapter = NoOp()
    node = f"node-{random.random()}"
    dispatcher = Dispatcher(store, {"email": adapter}, node, SystemClock(), random.Random(1), OPTIONS)
    watch = Stopwatch()
    running = asyncio.create_task(dispatcher.run())
    while adapter.count < rows:
        await asyncio.sleep(0.002)
    await dispatcher.idle()
    rate = watch.rate(rows)
    dispatcher.stop()
    await running
    return rate


async def compare_two(report: Report, store: Store, rows: int) -> None:
    """Two processes compared with one, from the start signal to an empty table."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for count in (1, 2):
            await fill(store, rows)
            rates[count].append(await drain_by_processes(store.url, rows, count))
    one, two = sorted(rates[1])[1], sorted(rates[2])[1]
    report.add(Figure("dispatch two processes over one", two, "rows/s", one, notes=f"{rows:,} rows, 2 x 256 slots"))


async def drain_by_processes(url: str, rows: int, count: int) -> float:
    command = [sys.executable, "-m", "bench.dispatch", url]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for child in children:
            assert child.stdout is not None
            await asyncio.to_thread(child.stdout.readline)
        watch = Stopwatch()
        for child in children:
            assert child.stdin is not None
            child.stdin.write(b"go\n")
            child.stdin.flush()
        connection = await asyncpg.connect(url)
        while await connection.fetchval("select exists (select 1 from notifications where status = 'pending')"):
            await asyncio.sleep(0.01)
        rate = watch.rate(rows)
        await connection.close()
        return rate
    finally:
        for child in children:
            child.terminate()
            child.wait()


async def dispatch_until_killed(url: str) -> None:
    """A worker process: report ready, wait for the start signal, dispatch."""
    store = open_store(url)
    node = f"node-{os.getpid()}"
    dispatcher = Dispatcher(store, {"email": NoOp()}, node, SystemClock(), random.Random(1), OPTIONS)
    gc_tuning.set_aside()  # as a central process does
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await dispatcher.run()


async def drain_by_hand(url: str, rows: int) -> float:
    pool = await asyncpg.create_pool(url, min_size=2, max_size=2)
    watch = Stopwatch()
    await asyncio.gather(_work(pool), _work(pool))
    rate = watch.rate(rows)
    await pool.close()
    return rate


async def _work(pool: asyncpg.Pool) -> None:
    while claimed := await pool.fetch(
        """
        with due as materialized (
            select notification_id from notifications
            where status = 'pending' and held_by is null and due_at <= clock_timestamp()
                and (lease_until is null or lease_until <= clock_timestamp())
            limit $1 for update skip locked
        ),
        claimed as (
            update notifications set claim_owner = 'me', claim_token = claim_token + 1,
                lease_until = clock_timestamp() + interval '90 s'
            where notification_id = any(array(select notification_id from due))
            returning notification_id, claim_token, list_name, subject, body, cycle, source_site_id, source_script
        ),
        started as (
            insert into attempts (notification_id, claim_token, cycle, node_id, started_at)
            select notification_id, claim_token, cycle, 'me', clock_timestamp() from claimed
        )
        select claimed.*, l.address from claimed join list_targets l using (list_name)
        """,
        BATCH,
    ):
        now = datetime.now(UTC)
        ids = [row["notification_id"] for row in claimed]
        tokens = [row["claim_token"] for row in claimed]
        events = new_ids(now, os.urandom(20 * len(ids)))
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(
                """
                update notifications n set status = 'delivered', last_attempt_at = $1, delivered_at = $1,
                    terminal_at = $1, due_at = null, claim_owner = null, lease_until = null, version = version + 1
                from unnest($2::uuid[], $3::bigint[]) as u(id, token)
                where n.notification_id = u.id and n.claim_token = u.token and n.claim_owner = 'me'
                """,
                now,
                ids,
                tokens,
            )
            await connection.execute(
                """
                insert into targets (notification_id, address, status, settled_at)
                select id, address, 'delivered', $1 from unnest($2::uuid[], $3::text[]) as u(id, address)
                """,
                now,
                ids,
                [row["address"] for row in claimed],
            )
            await connection.execute(
                """
                update attempts a set finished_at = $1, outcome = 'delivered', duration_ms = 0
                from unnest($2::uuid[], $3::bigint[]) as u(id, token)
                where a.notification_id = u.id and a.claim_token = u.token
                """,
                now,
                ids,
                tokens,
            )
            await connection.execute(
                """
                insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status,
                    source_site_id, source_node, source_script, actor, target, duration_ms)
                select event, $1, $1, id, 'notification', 'notify_deliver', status, site, 'me', script, 'system',
                    list, 0
                from unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[])
                    as u(event, id, status, site, script, list)
                """,
                now,
                events,
                ids + ids,
                ["attempted"] * len(ids) + ["delivered"] * len(ids),
                [row["source_site_id"] for row in claimed] * 2,
                [row["source_script"] for row in claimed] * 2,
                [row["list_name"] for row in claimed] * 2,
            )


if __name__ == "__main__":
    import uvloop

    log_to_nowhere()
    uvloop.run(dispatch_until_killed(sys.argv[1]))
