"""Another process holds the write lock of an embedded central's database for longer than is waited."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.sqlite_store import SqliteStore
from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.core.notification import Status
from support.centre import Centre, ScriptedAdapter
from support.running_central import until

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.fault(33)
async def test_batch_on_a_locked_database_is_rejected_as_a_whole_and_accepted_later(sqlite_url: str) -> None:
    clock = SystemClock()
    store = SqliteStore(parse_url(sqlite_url), clock, busy_s=0.1)
    async with closing(store):
        centre = Centre(store, clock, ScriptedAdapter())
        await centre.add_channel()
        await centre.add_list()
        before = await centre.send()
        items = [centre.item() for _ in range(200)]
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HOLD, sqlite_url.removeprefix("sqlite:///")),
            stdin=asyncio.subprocess.PIPE,  # it holds on until this ends, at the latest with us
            stdout=asyncio.subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        node = centre.dispatcher(interval_s=0.1)
        with capture_logs() as logged:
            dispatching = asyncio.create_task(node.run())
            with pytest.raises(Unavailable, match="locked") as caught:
                await centre.submit(*items)
            assert caught.value.code == "store.unavailable"
            assert await centre.store.read(count) == 1, "nothing of the batch is there, what was there stays"
            await until(lambda: any(e["event"] == "sweep.failed" for e in logged), 20, "a sweep to find it locked")
            assert centre.adapter.envelopes == [], "nothing is sent without a claim"
            holder.kill()
            await holder.wait()
            ack = await centre.submit(*items)
            assert {result.verdict for result in ack.results} == {"accepted"}
            await centre.adapter.called(201)
            node.stop()
            await dispatching
        assert len(set(centre.adapter.sent())) == len(centre.adapter.sent()) == 201
        for i in (before, *(item.notification_id for item in items)):
            assert (await centre.get(i)).status is Status.DELIVERED


@asynccontextmanager
async def closing(store: SqliteStore) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await store.close()


def count(conn: Connection) -> int:
    return int(conn.execute(text("select count(*) from notifications")).scalar_one())
