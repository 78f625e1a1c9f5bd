"""PostgreSQL goes away and comes back while nodes are at work."""

import asyncio
import os
import signal

import pytest

from support.cluster import Cluster
from support.ordeals import disturbed
from support.postgres import PostgresServer

RECOVERY_S = 10.0


@pytest.mark.fault(27)
async def test_a_fast_and_an_immediate_restart_of_the_database_lose_nothing_and_end_no_process(
    durable_cluster: Cluster, pg_server: PostgresServer
) -> None:
    async def restart(number: int) -> None:
        await asyncio.to_thread(pg_server.stop, (signal.SIGINT, signal.SIGQUIT)[number])
        await asyncio.to_thread(pg_server.start)

    recovery = await disturbed(durable_cluster, restart, times=2)
    assert recovery.verdict.is_whole
    assert recovery.verdict.copies_too_many <= recovery.in_flight
    assert recovery.recovered_s <= RECOVERY_S
    assert await durable_cluster.broken_rules() == {}


@pytest.mark.fault(28)
async def test_the_death_of_one_backend_loses_nothing_and_ends_no_process(durable_cluster: Cluster) -> None:
    async def kill_one(number: int) -> None:
        backends = await durable_cluster.query(
            "select pid from pg_stat_activity where application_name = 'fieldpost' order by pid"
        )
        os.kill(backends[number % len(backends)]["pid"], signal.SIGKILL)

    recovery = await disturbed(durable_cluster, kill_one, times=1)
    assert recovery.verdict.is_whole
    assert recovery.verdict.copies_too_many <= recovery.in_flight
    assert recovery.recovered_s <= RECOVERY_S
    assert await durable_cluster.broken_rules() == {}
