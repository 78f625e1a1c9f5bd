"""A store URL with several servers: central uses the primary, and the promoted standby after a failover."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.central.store.engine.postgres_store import PostgresStore
from fieldpost.central.store.schema.migrate import upgrade_async
from fieldpost.core.errors import Unavailable
from support.need import cannot_have
from support.postgres import PostgresUnavailable
from support.running_central import RunningCentral, call, until
from support.standby import Replicated, query


@pytest.mark.fault(31)
async def test_central_continues_with_the_promoted_standby(tmp_path: Path) -> None:
    servers = await replicated()
    try:
        # The standby comes first: pool, LISTEN and migration must all pass it over.
        hosts = ",".join(quote(str(server.folder), safe="") for server in (servers.standby, servers.primary))
        async with RunningCentral(f"postgresql://postgres@{hosts}/postgres", tmp_path) as node:
            token = (tmp_path / "api-token").read_text().strip()
            await call(node, token, "POST", "sites", {"name": "north"})
            await until(lambda: listeners(servers.primary.url()), 10, "central to listen at the primary")
            pid = node.pid

            await servers.fail_over()
            await until(lambda: has_added(node, token, "south"), 30, "central to write to the promoted standby")
            await until(lambda: listeners(servers.standby.url()), 20, "central to listen there")
            sites = await call(node, token, "GET", "sites")
            assert {site["name"] for site in sites["sites"]} == {"north", "south"}
            assert (node.is_running, node.pid, node.surprises()) == (True, pid, [])
    finally:
        await asyncio.to_thread(servers.remove)


@pytest.mark.fault(31)
async def test_a_former_primary_that_turned_read_only_is_left_for_the_new_one() -> None:
    """As a cluster manager fences it: the server runs, and its connections stay open."""
    servers = await replicated()
    try:
        await upgrade_async(servers.primary.url())
        hosts = ",".join(str(server.folder) for server in (servers.primary, servers.standby))
        store = PostgresStore(parse_url(f"postgresql://postgres@/postgres?host={hosts}"), None)
        try:
            await store.write(add_site, "north")
            await query(servers.standby.url(), "select pg_promote()")
            await query(servers.primary.url(), "alter system set default_transaction_read_only = on")
            await query(servers.primary.url(), "select pg_reload_conf()")

            async def has_written() -> bool:
                try:
                    await store.write(add_site, "south")
                except Unavailable:
                    return False
                return bool(await query(servers.standby.url(), "select 1 from sites where site_name = 'south'"))

            await until(has_written, 20, "a write at the new primary")
        finally:
            await store.close()
    finally:
        await asyncio.to_thread(servers.remove)


async def replicated() -> Replicated:
    try:
        return await Replicated().__aenter__()
    except PostgresUnavailable as error:
        cannot_have("postgres", str(error))


def add_site(conn: Connection, name: str) -> None:
    sql = "insert into sites (site_name, created_at) values (:name, now()) on conflict do nothing"
    conn.execute(text(sql), {"name": name})


async def listeners(url: str) -> int:
    found = await query(
        url, "select count(*) from pg_stat_activity where query ilike 'listen%' or query ilike 'notify%'"
    )
    return int(found[0][0])


async def has_added(node: RunningCentral, token: str, name: str) -> bool:
    try:
        await call(node, token, "POST", "sites", {"name": name})
    except aiohttp.ClientResponseError as error:
        # 503 until the standby is found; 409 if an earlier request was stored after all.
        if error.status != 503:
            return error.status == 409
        return False
    return True
