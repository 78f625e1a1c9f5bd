"""PostgreSQL restarted, crashed and cut off again and again while two nodes are at work; SQLite locked for long."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from fieldpost.testing import MailServer
from support.cluster import Cluster
from support.ordeals import disturbed, lost_answers
from support.postgres import PostgresServer

pytestmark = pytest.mark.timeout(1800)
RECOVERY_S = 10.0


@pytest.mark.fault(27)
async def test_ten_restarts_of_the_database_lose_nothing(durable_cluster: Cluster, pg_server: PostgresServer) -> None:
    async def restart(number: int) -> None:
        await asyncio.to_thread(pg_server.stop, (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)[number % 3])
        await asyncio.to_thread(pg_server.start)

    recovery = await disturbed(durable_cluster, restart, times=10)
    assert recovery.verdict.is_whole
    assert recovery.verdict.copies_too_many <= recovery.in_flight
    assert recovery.recovered_s <= RECOVERY_S
    assert await durable_cluster.broken_rules() == {}


@pytest.mark.fault(28)
async def test_ten_deaths_of_a_backend_lose_nothing(durable_cluster: Cluster) -> None:
    async def kill_one(number: int) -> None:
        backends = await durable_cluster.query(
            "select pid from pg_stat_activity where application_name = 'fieldpost' order by pid"
        )
        os.kill(backends[number % len(backends)]["pid"], signal.SIGKILL)

    recovery = await disturbed(durable_cluster, kill_one, times=10)
    assert recovery.verdict.is_whole
    assert recovery.verdict.copies_too_many <= recovery.in_flight
    assert recovery.recovered_s <= RECOVERY_S
    assert await durable_cluster.broken_rules() == {}


@pytest.mark.fault(29)
@pytest.mark.req("DEC-03")
async def test_a_hundred_lost_answers_to_a_commit_have_no_second_effect(cluster: Cluster) -> None:
    verdict = await lost_answers(cluster, cuts=100)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    assert await cluster.broken_rules() == {}


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.fault(33)
async def test_an_embedded_central_lives_through_a_lock_held_longer_than_it_waits(
    tmp_path: Path, mail: MailServer
) -> None:
    file = tmp_path / "central.db"
    async with Cluster(f"sqlite:///{file}", tmp_path, mail) as cluster:
        node = await cluster.start()
        await cluster.furnish("ops")
        async with cluster.sender() as sender:
            items = sender.items(50, "ops")
            holder = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", HOLD, str(file)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            assert holder.stdout is not None
            assert await holder.stdout.readline() == b"held\n"
            while not sender.refused["503"]:
                assert await sender.offer(items) is None
            holder.kill()
            await holder.wait()
            await sender.deliver(items)
            await mail.received(50, timeout_s=60)
        assert node.is_running
        assert await node.stop() == 0
    assert mail.mail_count == 50
