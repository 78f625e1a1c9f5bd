"""All connections of a node to its database are taken, and none comes free: what wants one waits, then is put off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import httpx2
import pytest
from structlog.testing import capture_logs

from fieldpost.central.commands.sender import CommandSender
from fieldpost.central.operate.operate import Operate
from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.postgres_store import PostgresStore
from fieldpost.central.watch.watch import Watch
from fieldpost.clock import SystemClock
from fieldpost.core.notification import Status
from fieldpost.front.app import create_app
from fieldpost.link.codec import encode
from fieldpost.link.messages import Submit
from support.centre import SITE, Centre, ScriptedAdapter
from support.front import ADMIN
from support.running_central import until

LOCK = "lock table {} in access exclusive mode"
CONNECTIONS = 3


@asynccontextmanager
async def locked(url: str, *tables: str) -> AsyncIterator[None]:
    """Whoever wants these tables waits meanwhile, and keeps the connection by which it waits."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(LOCK.format(", ".join(tables)))
            yield
    finally:
        await connection.close()


async def are_waiting(url: str, count: int) -> bool:
    """Whether so many wait for a table of this database."""
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetchval(
            "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
            " where d.datname = current_database() and not l.granted"
        )
        return bool(found >= count)
    finally:
        await connection.close()


async def is_taken(submit: Callable[[], Awaitable[httpx2.Response]]) -> bool:
    return (await submit()).status_code == 200


@pytest.mark.fault(32)
async def test_node_without_free_connections_defers_sites_and_recovers(pg_url: str) -> None:
    clock = SystemClock()
    store = PostgresStore(parse_url(pg_url), None, connections_max=CONNECTIONS, wait_s=1.0)
    centre = Centre(store, clock, ScriptedAdapter())
    operate = Operate.over(store, centre.adapters, clock, centre.keyring)
    app = create_app(
        operate, Watch.over(store, clock), centre.ingest, CommandSender(store, centre.ingest.mirrors, 300.0, clock)
    )
    await centre.add_channel()
    await centre.add_list()
    token = (await operate.sites.add(ADMIN, SITE)).token
    before = await centre.send()
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://central.example") as client:

        async def submit() -> httpx2.Response:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            content = encode(Submit(1, (centre.item(),)))
            return await client.post("/link/v1/submit", content=content, headers=headers)

        node = centre.dispatcher(interval_s=0.1)
        with capture_logs() as logged:
            async with locked(pg_url, "notifications"):
                waiting = [asyncio.create_task(centre.get(before)) for _ in range(CONNECTIONS)]
                await until(lambda: are_waiting(pg_url, CONNECTIONS), 20, "all connections to be taken")
                dispatching = asyncio.create_task(node.run())
                await until(lambda: any(e["event"] == "sweep.failed" for e in logged), 20, "a sweep without connection")
                refused = await submit()
                assert (refused.status_code, refused.json()["code"]) == (503, "store.unavailable")
                assert int(refused.headers["Retry-After"]) > 0
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/readyz")).status_code == 503
                assert (await client.get("/login")).status_code == 200, "the console answers"
                assert centre.adapter.envelopes == [], "nothing is sent without a claim"
            assert len(await asyncio.gather(*waiting)) == CONNECTIONS, "whoever had one only waited"
        # Whatever waited meanwhile wants the same few connections now.
        await until(lambda: is_taken(submit), 20, "the site's next try to be taken")
        await centre.adapter.called(2)
        node.stop()
        await dispatching
        assert (await client.get("/readyz")).status_code == 200
    assert (await centre.get(before)).status is Status.DELIVERED
    await store.close()
