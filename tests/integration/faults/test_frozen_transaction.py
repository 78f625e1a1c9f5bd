"""A node frozen between a statement and its COMMIT keeps its row locks no longer than a lease."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.postgres_store import TRIES_MAX
from fieldpost.central.store.figures import leases
from fieldpost.central.store.notifications import claims
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.session_watch import SessionWatch
from fieldpost.clock import SystemClock
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.errors import Unavailable
from support import frozen_node
from support.centre import Centre, open_centre
from support.running_central import until

LEASE_S = 1.0
SOON_S = 15.0
"""Far more than a lease, far less than a node may stay frozen."""


@asynccontextmanager
async def frozen(url: str, what: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A node that holds the locks of one transaction and is stopped."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, frozen_node.__file__, url, str(LEASE_S), what, stdout=asyncio.subprocess.PIPE
    )
    try:
        await until(lambda: is_stopped(process.pid), 30, "the node to be stopped in its transaction")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[None]:
    """Another node, as far as it ends the sessions of frozen ones."""
    store = open_store(url, lease_s=LEASE_S)
    watch = SessionWatch(store, SystemClock(), UpkeepOptions(lease_s=LEASE_S, renew_s=LEASE_S / 10))
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def wake(process: asyncio.subprocess.Process) -> tuple[int, int]:
    """How often its function ran, and how much it has taken in the end."""
    os.kill(process.pid, signal.SIGCONT)
    output, _ = await asyncio.wait_for(process.communicate(), SOON_S)
    assert process.returncode == 0
    runs, taken = map(int, output.splitlines()[-1].split())
    return runs, taken


@pytest.fixture
async def centre(pg_url: str) -> AsyncIterator[Centre]:
    async with open_centre(pg_url, SystemClock()) as opened:
        await opened.add_channel()
        await opened.add_list()
        yield opened


@pytest.mark.req("DEC-06")
async def test_the_lead_of_a_node_frozen_in_its_transaction_moves(pg_url: str) -> None:
    store = open_store(pg_url, lease_s=LEASE_S)
    try:
        async with frozen(pg_url, "lead") as node, asyncio.timeout(SOON_S):
            lease = await store.write_one(leases.take, leases.LEADER, "other", lease_s=60.0, now=None)
            assert lease is not None
            # Its transaction is gone; run again, it finds the lead taken.
            assert await wake(node) == (2, 0)
    finally:
        await store.close()


@pytest.mark.req("DEC-06")
@pytest.mark.parametrize("what", ["claim", "prepare"])
async def test_rows_of_a_node_frozen_in_its_claim_are_taken_over(centre: Centre, pg_url: str, what: str) -> None:
    sent = await centre.send()

    async def take() -> list[str]:
        claimed = await centre.store.write(
            claims.claim_due, "other", Lane.FRESH, limit=10, per_key=10, busy={}, after="", lease_s=60.0, now=None
        )
        return [one.notification.notification_id for one in claimed]

    async with frozen(pg_url, what) as node:
        assert await take() == [], "they are locked"
        async with watching(pg_url):
            assert await until(take, SOON_S, "the rows to come free") == [sent]
        assert await wake(node) == (2, 0)


async def test_a_session_whose_statement_takes_longer_than_a_lease_is_not_ended(pg_url: str) -> None:
    store = open_store(pg_url, lease_s=LEASE_S)
    runs = 0

    def read(conn: Connection) -> int:
        nonlocal runs
        runs += 1
        return int(conn.execute(text(f"select 1 from pg_sleep({2 * LEASE_S})")).scalar_one())

    try:
        async with watching(pg_url):
            assert (await store.read(read), runs) == (1, 1)
    finally:
        await store.close()


@pytest.mark.parametrize("end", ["pg_terminate_backend", "pg_cancel_backend"])
async def test_a_terminated_session_or_cancelled_statement_is_retried_and_never_taken_for_done(
    pg_url: str, end: str
) -> None:
    store = open_store(pg_url)
    admin = await asyncpg.connect(pg_url)
    pids: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    failures = 0

    def insert(conn: Connection) -> int:
        conn.execute(text("insert into sites (site_name, created_at) values ('north', now())"))
        if failures:
            pid = conn.execute(text("select pg_backend_pid()")).scalar_one()
            loop.call_soon(pids.put_nowait, pid)
            conn.execute(text("select pg_sleep(30)"))
        return 1

    async def is_asleep(pid: int) -> bool:
        sql = "select wait_event = 'PgSleep' from pg_stat_activity where pid = $1"
        return bool(await admin.fetchval(sql, pid))

    async def interrupt(count: int) -> None:
        nonlocal failures
        failures = count
        while failures:
            pid = await pids.get()
            # A cancel request that arrives before the statement has no effect.
            await until(partial(is_asleep, pid), SOON_S, "the statement to run")
            await admin.execute(f"select {end}($1)", pid)
            failures -= 1

    try:
        interrupting = asyncio.create_task(interrupt(TRIES_MAX))
        with pytest.raises(Unavailable):
            await store.write(insert)
        await interrupting
        assert await admin.fetchval("select count(*) from sites") == 0
        interrupting = asyncio.create_task(interrupt(1))
        await asyncio.sleep(0)
        assert await store.write(insert) == 1
        await interrupting
        assert await admin.fetchval("select count(*) from sites") == 1
    finally:
        await admin.close()
        await store.close()


async def test_a_lock_is_waited_for_no_longer_than_a_lease(pg_url: str) -> None:
    store = open_store(pg_url, lease_s=0.2)
    admin = await asyncpg.connect(pg_url)
    try:
        async with admin.transaction():
            await admin.execute("lock table leases in access exclusive mode")
            with pytest.raises(Unavailable, match="lock timeout"):
                async with asyncio.timeout(SOON_S):
                    await store.write_one(leases.take, leases.LEADER, "other", lease_s=LEASE_S, now=None)
        assert await store.write_one(leases.take, leases.LEADER, "other", lease_s=LEASE_S, now=None)
    finally:
        await admin.close()
        await store.close()
