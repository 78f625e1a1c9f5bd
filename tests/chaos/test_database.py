"""PostgreSQL restarted, crashed and cut off again and again while two nodes are at work; SQLite locked for long."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from fieldpost.link.messages import Item
from fieldpost.testing import MailServer
from support.cluster import Cluster, started_together
from support.ordeals import LISTS, disturbed, lost_answers
from support.postgres import PostgresServer
from support.running_central import RunningCentral, until

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
async def test_embedded_central_survives_a_lock_held_longer_than_its_timeout(tmp_path: Path, mail: MailServer) -> None:
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


@pytest.mark.fault(32)
async def test_two_nodes_with_exhausted_pools_defer_sites_and_recover(cluster: Cluster) -> None:
    """For half a minute every statement on the table waits, until no connection of either node is free."""
    nodes = await started_together(cluster, 2)
    await cluster.furnish(*LISTS)
    stop = asyncio.Event()
    async with cluster.sender() as sender, aiohttp.ClientSession() as session:

        async def status(node: RunningCentral, path: str) -> int:
            async with session.get(node.url + path) as answer:
                return answer.status

        sending = [asyncio.create_task(sender.send_until(stop, cluster.mail, *LISTS)) for _ in range(40)]
        await cluster.mail.received(100)
        connection = await asyncpg.connect(cluster.url)
        async with connection.transaction():
            await connection.execute("lock table notifications in access exclusive mode")
            await until(lambda: sender.refused["503"] >= 2, 60, "sites to be put off")
            for node in nodes:
                assert [await status(node, path) for path in ("/healthz", "/login")] == [200, 200]
            before = cluster.mail.mail_count
        await connection.close()
        await cluster.mail.until(lambda: cluster.mail.mail_count > before, timeout_s=30, what="a new delivery")
        stop.set()
        await asyncio.gather(*sending)
        await cluster.settle()
        assert all(node.is_running for node in nodes)
        assert sender.refused.keys() <= {"503", "429"}, (
            "put off, since the store has no room or the site too many calls"
        )
        verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert await cluster.broken_rules() == {}


READ = HOLD.replace("BEGIN IMMEDIATE", "BEGIN").replace(
    "print", "connection.execute('SELECT count(*) FROM notifications').fetchall(); print"
)


@pytest.mark.fault(34)
async def test_embedded_central_reports_a_log_that_grows_because_of_a_long_read(
    tmp_path: Path, mail: MailServer
) -> None:
    file = tmp_path / "central.db"
    async with Cluster(f"sqlite:///{file}", tmp_path, mail) as cluster, aiohttp.ClientSession() as session:
        node = await cluster.start(environment={"FIELDPOST_FRONT__BYTES_PER_S": "1e9"})
        await cluster.furnish("ops")

        async def log_check() -> dict[str, Any]:
            async with session.get(f"{node.url}/readyz") as answer:
                return next(c for c in (await answer.json())["checks"] if c["name"] == "log")

        async with cluster.sender() as sender:

            async def send(count: int) -> None:
                items = [Item(i.notification_id, "ops", "large", "x" * 250_000) for i in sender.items(count, "ops")]
                for start in range(0, count, 10):
                    await sender.deliver(items[start : start + 10])

            await send(200)
            assert (await log_check())["status"] == "ok"
            reader = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", READ, str(file)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            assert reader.stdout is not None
            assert await reader.stdout.readline() == b"held\n"
            await send(1200)
            told = await log_check()
            assert (told["status"], "does not end" in told["detail"]) == ("warning", True)
            reader.kill()
            await reader.wait()
            await send(50)
            assert (await log_check())["status"] == "ok"
            size = await asyncio.to_thread(lambda: Path(f"{file}-wal").stat().st_size)
            assert size <= 65 * 1024**2
            await mail.received(1450, timeout_s=120)
        assert await node.stop() == 0
