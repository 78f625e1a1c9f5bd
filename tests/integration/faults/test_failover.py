"""A store URL with several servers: central uses the primary, and the promoted standby after a failover."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from support.need import cannot_have
from support.postgres import PostgresUnavailable
from support.running_central import RunningCentral, call, until
from support.standby import Replicated, query


@pytest.mark.fault(31)
async def test_central_goes_on_with_the_promoted_standby(tmp_path: Path) -> None:
    try:
        servers = await Replicated().__aenter__()
    except PostgresUnavailable as error:
        cannot_have("postgres", str(error))
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
