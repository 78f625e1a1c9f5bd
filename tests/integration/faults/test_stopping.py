"""SIGTERM while deliveries are under way."""

import asyncio

import pytest

from support.cluster import Cluster

GRACE_S = 1.5
LONG_LEASE = {"FIELDPOST_DISPATCH__LEASE_S": "60", "FIELDPOST_DISPATCH__RENEW_S": "1"}
SHORT_GRACE = {"FIELDPOST_DISPATCH__GRACE_S": str(GRACE_S)}
LONG_GRACE = {"FIELDPOST_DISPATCH__GRACE_S": "25"}
SLACK_S = 20.0
"""What a loaded machine may add; whoever waited for the mail server would wait for minutes."""


@pytest.mark.fault(59)
@pytest.mark.req("DSP-12")
async def test_stopping_node_claims_nothing_more_and_releases_unfinished_rows(cluster: Cluster) -> None:
    eight = {"FIELDPOST_DISPATCH__SLOTS": "8"}
    stopping = await cluster.start(environment=LONG_LEASE | SHORT_GRACE | eight)
    await cluster.furnish("ops", "late")
    cluster.mail.on("data").hang().times(8)
    async with cluster.sender() as sender:
        sent = await sender.send(20, "ops")
        flights = await cluster.until_in_flight(8, stopping)
        await cluster.mail.saw("data", 8)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await stopping.stop() == 0
        assert loop.time() - began < GRACE_S + SLACK_S
        rows = await cluster.query("select notification_id::text as id, status, claim_owner from notifications")
        assert {(row["status"], row["claim_owner"]) for row in rows} == {("pending", None)}
        ends = await cluster.query("select notification_id::text as id, outcome, error from attempts")
        assert {row["id"] for row in ends} == {flight["id"] for flight in flights} < set(sent), "no more were claimed"
        assert {(row["outcome"], row["error"]) for row in ends} == {("released", "the node stopped")}
        assert (await cluster.query("select stopped_at from nodes"))[0]["stopped_at"] is not None
        # What was given back waits for no lease: the next node takes it at once.
        await cluster.start(environment=LONG_LEASE)
        await cluster.mail.received(20)
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    assert await cluster.query("select 1 from notifications where orphan_count > 0") == []
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(59)
async def test_stopping_node_finishes_attempts_within_its_grace_time(cluster: Cluster) -> None:
    node = await cluster.start(environment=LONG_LEASE | LONG_GRACE)
    await cluster.furnish("ops")
    cluster.mail.on("dot").wait(answered := asyncio.Event())
    async with cluster.sender() as sender:
        await sender.send(8, "ops")
        await cluster.mail.saw("dot", 8)
        stopping = asyncio.create_task(node.stop())
        await node.until_logged("central.stopping")
        answered.set()
        assert await stopping == 0
        verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    outcomes = await cluster.query("select outcome, count(*) from attempts group by 1")
    assert [tuple(row) for row in outcomes] == [("delivered", 8)]
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(59)
@pytest.mark.req("DEC-10")
async def test_a_send_that_a_stopping_node_leaves_unanswered_is_recorded_as_uncertain(cluster: Cluster) -> None:
    node = await cluster.start(environment=LONG_LEASE | SHORT_GRACE)
    await cluster.furnish("ops")
    cluster.mail.on("dot").keep_mail().hang().times(4)
    async with cluster.sender() as sender:
        await sender.send(4, "ops")
        await cluster.mail.received(4)
        assert await node.stop() == 0
        ends = await cluster.query("select outcome, phase from attempts")
        assert {tuple(row) for row in ends} == {("uncertain", "stopped")}
        rows = await cluster.query("select status, claim_owner, retry_count from notifications")
        assert {tuple(row) for row in rows} == {("retrying", None, 1)}
        await cluster.start()
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert verdict.copies_too_many == 4
