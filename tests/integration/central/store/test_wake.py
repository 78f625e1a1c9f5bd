"""Wake-ups: a hint within the process, and on PostgreSQL to the other nodes, however many commits there are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from fieldpost.central.store.engine import wake
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.postgres_servers import PostgresServers
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.engine.wake import COALESCE_S, PostgresWake
from support.running_central import until

DEADLINE_S = 20


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    task = asyncio.create_task(store.wake.listen())
    try:
        yield store
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await store.close()


@pytest.mark.req("DEC-08")
async def test_wake_up_ends_one_wait_and_a_wait_has_a_timeout(store_url: str) -> None:
    store = open_store(store_url)
    store.wake.set()
    store.wake.set()
    assert await store.wake.wait(DEADLINE_S)
    assert not await store.wake.wait(0.01)
    await store.close()


@pytest.mark.req("DEC-08")
async def test_wake_up_reaches_the_other_nodes(pg_url: str) -> None:
    async with listening(pg_url) as one, listening(pg_url) as other:
        # The first wake-up of each says that it listens now.
        assert await one.wake.wait(DEADLINE_S)
        assert await other.wake.wait(DEADLINE_S)
        one.wake.set()
        assert await other.wake.wait(DEADLINE_S)


@pytest.mark.req("DEC-08")
async def test_many_wake_ups_leave_as_few_notifications(pg_url: str) -> None:
    heard: list[str] = []
    told = asyncio.Event()
    watcher = await asyncpg.connect(pg_url)

    def hear(*_: object) -> None:
        heard.append("x")
        told.set()

    await watcher.add_listener(PostgresWake.CHANNEL, hear)
    loop = asyncio.get_running_loop()
    async with listening(pg_url) as store:
        assert await store.wake.wait(DEADLINE_S)
        began = loop.time()
        for _ in range(2000):
            store.wake.set()
            await asyncio.sleep(0)
        took_s = loop.time() - began
        async with asyncio.timeout(DEADLINE_S):
            await told.wait()
    # The second look gives the last one, if there is one, time to arrive: commands are answered in order.
    await watcher.fetchval("select 1")
    await watcher.close()
    assert len(heard) <= took_s / COALESCE_S + 2


@pytest.mark.fault(28)
async def test_a_lost_listening_connection_is_opened_again(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fieldpost.central.store.engine.wake.RECONNECT_S", 0.05)
    async with listening(pg_url) as store:
        assert await store.wake.wait(DEADLINE_S)
        visitor = await asyncpg.connect(pg_url)
        await visitor.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert await store.wake.wait(DEADLINE_S), "listening again, it looks once for what it did not hear"
        await visitor.execute(f"notify {PostgresWake.CHANNEL}")
        assert await store.wake.wait(DEADLINE_S)
        await visitor.close()


@pytest.mark.fault(27)
async def test_end_of_the_server_during_a_notification_ends_no_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver loses its own thread then, and raises what is neither an error of the database nor of the network."""
    monkeypatch.setattr(wake, "RECONNECT_S", 0.01)
    conversations = 0

    async def cut_short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal conversations
        conversations += 1
        await reader.read(1000)
        writer.write(b"R\x00\x00\x00\x04")  # a question for a password, without the question
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(cut_short, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = make_url(f"postgresql://someone@127.0.0.1:{port}/some?sslmode=disable")
        task = asyncio.create_task(PostgresWake(PostgresServers(url)).listen())
        await until(lambda: conversations >= 3 or task.done())
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
