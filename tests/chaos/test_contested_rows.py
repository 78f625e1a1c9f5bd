"""Operators at two nodes, the purge and both dispatchers want the same rows, over the API of real processes."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from support.cluster import TOKEN_FILE, Cluster, started_together
from support.running_central import RunningCentral, until

pytestmark = pytest.mark.timeout(1800)
CONTENDERS = 16


@pytest.fixture
async def session(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    """An administrator's programs; to be used once the first node has started."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONTENDERS)) as opened:
        yield opened


async def act(
    session: aiohttp.ClientSession, cluster: Cluster, node: RunningCentral, verb: str, row: Any
) -> tuple[str, int, str]:
    """The verb, the status of its answer, and the code of the problem."""
    token = (cluster.nodes[0].folder / TOKEN_FILE).read_text().strip()
    url = f"{node.url}/api/v1/notifications/{row['id']}/{verb}"
    headers = {"Authorization": f"Bearer {token}"}
    async with session.post(url, json={"version": row["version"]}, headers=headers) as answer:
        told = await answer.json()
        return verb, answer.status, told.get("code", "")


async def parked(cluster: Cluster) -> list[Any]:
    return await cluster.query(
        "select notification_id::text as id, version from notifications where status = 'parked' order by 1"
    )


async def acts_told(cluster: Cluster) -> dict[str, list[str]]:
    """What the audit tells of people, by notification."""
    told: dict[str, list[str]] = {}
    for row in await cluster.query(
        "select correlation_id::text as id, status from audit"
        " where kind = 'operator_action' and correlation_id is not null order by occurred_at, event_id"
    ):
        told.setdefault(row["id"], []).append(row["status"])
    return told


@pytest.mark.fault(57)
@pytest.mark.req("DEC-03", "DEC-15")
async def test_a_thousand_rounds_of_retry_and_discard_at_two_nodes_have_one_winner_each(
    cluster: Cluster, session: aiohttp.ClientSession
) -> None:
    nodes = await started_together(cluster, 2)
    await cluster.furnish("ops")
    cluster.mail.on("rcpt").reply(550, "5.1.1 no such user")
    told: dict[str, list[str]] = {}
    wins: Counter[str] = Counter()
    rng = random.Random(57)
    async with cluster.sender() as sender:
        row: Any = None
        for _ in range(1000):
            if row is None:
                await sender.send(1, "ops")
            [row] = await until(lambda: parked(cluster), 20, "the row to be parked", every_s=0.01)
            contenders = [(node, verb) for node in nodes for verb in ("retry", "discard")]
            rng.shuffle(contenders)
            answers = await asyncio.gather(*(act(session, cluster, node, verb, row) for node, verb in contenders))
            [winner] = [verb for verb, status, _ in answers if status == 200]
            refused = [(status, code) for _, status, code in answers if status != 200]
            assert {status for status, _ in refused} == {409}
            assert {code for _, code in refused} <= {"notification.changed", "notification.not_parked"}
            wins[winner] += 1
            told.setdefault(row["id"], []).append({"retry": "submitted", "discard": "discarded"}[winner])
            row = None if winner == "discard" else row
        await cluster.settle()
    assert set(wins) == {"retry", "discard"}
    assert await acts_told(cluster) == told, "the audit has all of it, and nothing else"
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(56)
@pytest.mark.req("CFG-01", "DEC-03", "DEC-18")
async def test_rows_that_two_nodes_retry_discard_sweep_and_purge_do_not_vanish(
    cluster: Cluster, session: aiohttp.ClientSession
) -> None:
    quick = {
        "FIELDPOST_UPKEEP__TERMINAL_RETENTION_DAYS": "0.00005",
        "FIELDPOST_UPKEEP__PURGE_INTERVAL_S": "0.2",
        "FIELDPOST_UPKEEP__PURGE_BATCH": "10",
    }
    nodes = await started_together(cluster, 2, environment=quick)
    await cluster.furnish("ops")
    cluster.mail.on("rcpt").reply(550, "5.1.1 no such user")
    won: Counter[str] = Counter()
    async with cluster.sender() as sender:
        sending = asyncio.create_task(sender.send(1000, "ops", batch=50))
        rng = random.Random(56)

        async def contend() -> None:
            while not (sending.done() and not await parked(cluster)):
                for row in rng.sample(found := await parked(cluster), len(found)):
                    _, status, code = await act(
                        session, cluster, rng.choice(nodes), rng.choice(["retry", "discard"]), row
                    )
                    assert (status, code) in (
                        (200, ""),
                        (409, "notification.changed"),
                        (409, "notification.not_parked"),
                        (404, "notification.unknown"),
                    )
                    won[row["id"]] += status == 200

        async with asyncio.timeout(600):
            await asyncio.gather(sending, *(contend() for _ in range(CONTENDERS)))
        await cluster.settle()
        left = await cluster.query(
            "select notification_id::text as id from notifications"
            " union all select notification_id::text from tombstones"
        )
        assert sorted(row["id"] for row in left) == sorted(sender.acked), "each is there once, or buried once"
    counts = {i: len(statuses) for i, statuses in (await acts_told(cluster)).items()}
    assert counts == {i: count for i, count in won.items() if count}, "the audit has all of it, and nothing else"
