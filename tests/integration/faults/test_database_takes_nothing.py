"""PostgreSQL is there and takes nothing: read-only, its disk full, or no connection left."""

import asyncio
from dataclasses import dataclass

import aiohttp
import asyncpg
import pytest

from support.cluster import Cluster
from support.postgres import PostgresServer
from support.running_central import RunningCentral, until
from support.verdict import deliveries_of


@dataclass(frozen=True)
class Trouble:
    """How a visitor of the database brings it about, and how it ends."""

    begins: tuple[str, ...]
    ends: tuple[str, ...]
    has_begun: str = "select true"
    """A look by a new connection; settings are read again a moment after that was asked for."""


TROUBLES = {
    "25006": Trouble(
        ("alter system set default_transaction_read_only = on", "select pg_reload_conf()"),
        ("alter system reset default_transaction_read_only", "select pg_reload_conf()"),
        "select current_setting('default_transaction_read_only') = 'on'",
    ),
    "53100": Trouble(
        (
            """
            create function disk_is_full() returns trigger language plpgsql as
            $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$
            """,
            """
            do $$ declare t regclass; begin
                for t in select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace loop
                    execute format('create trigger disk_is_full before insert or update on %s'
                        ' for each statement execute function disk_is_full()', t);
                end loop;
            end $$
            """,
        ),
        ("drop function disk_is_full() cascade",),
    ),
    "53300": Trouble(
        (
            "alter role app connection limit 0",
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'",
        ),
        ("alter role app connection limit -1",),
    ),
}


@pytest.mark.fault(66)
async def test_unavailable_database_is_waited_for(durable_cluster: Cluster, pg_server: PostgresServer) -> None:
    cluster = durable_cluster
    await do(cluster, "create role app login", "alter schema public owner to app")
    node = await cluster.start(url=pg_server.url().replace("postgres@", "app@"))
    await cluster.furnish("ops")
    pid = node.pid
    async with cluster.sender() as sender:
        for code, trouble in TROUBLES.items():
            # Something is on its way when it happens: refused for now, and due again in the midst of it.
            refusal = cluster.mail.on("rcpt").reply(451, "4.2.1 busy")
            await sender.send(4, "ops")
            await until(lambda: retrying(cluster, 4), 20, "four to be retried later")
            assert await readiness(node) == 200
            await do(cluster, *trouble.begins)
            await until(lambda look=trouble.has_begun: has_begun(cluster, look), 20, f"{code} to begin")  # type: ignore[misc]
            refusal.withdraw()
            items = sender.items(10, "ops")
            failed_before, mails_before = len(node.events("sweep.failed")), cluster.mail.mail_count
            claimed = {row["id"] for row in await cluster.in_flight()}
            assert await sender.offer(items) is None
            await until(lambda: is_ready(node, 503), 20, f"readiness to turn red by {code}")
            await node.until_logged("sweep.failed", failed_before + 2)
            sent = {delivery[0] for delivery in deliveries_of(cluster.mail.mails[mails_before:])}
            assert sent <= claimed, "nothing is sent that was not claimed"
            assert await cluster.query("select 1 from notifications where status = 'parked'") == []
            await do(cluster, *trouble.ends)
            await sender.deliver(items)
            await until(lambda: is_ready(node, 200), 20, f"readiness to turn green again after {code}")
            await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert set(sender.refused) == {"503"}
    assert (verdict.is_whole, verdict.acked) == (True, 14 * len(TROUBLES))
    assert verdict.duplicates == {}
    assert (node.is_running, node.pid) == (True, pid)
    assert await cluster.broken_rules() == {}


async def do(cluster: Cluster, *statements: str) -> None:
    for statement in statements:
        await until(lambda statement=statement: is_done(cluster, statement), 20, statement)  # type: ignore[misc]


async def is_done(cluster: Cluster, statement: str) -> bool:
    try:
        await cluster.query(statement)
    except asyncpg.DeadlockDetectedError:
        # The node locks the same tables in an order of its own: of two that block each other one has to try again.
        return False
    return True


async def has_begun(cluster: Cluster, look: str) -> bool:
    return bool((await cluster.query(look))[0][0])


async def retrying(cluster: Cluster, count: int) -> bool:
    return len(await cluster.query("select 1 from notifications where status = 'retrying'")) == count


async def is_ready(node: RunningCentral, status: int) -> bool:
    return await readiness(node) == status


async def readiness(node: RunningCentral) -> int:
    async with (
        asyncio.timeout(20),
        aiohttp.ClientSession() as session,
        session.get(f"{node.url}/healthz") as alive,
        session.get(f"{node.url}/readyz") as ready,
    ):
        assert alive.status == 200, "a restart of the process would not help"
        return ready.status
