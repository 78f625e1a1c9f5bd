"""The clock of one node is wrong: the database is the referee."""

import asyncio

import pytest

from support.cluster import Cluster
from support.running_central import LEASE_S, clock_off_by

DELAY_S = 2.0
SLACK_S = 15.0
"""What a loaded machine may add; a wrong clock would add an hour, or take it away."""


@pytest.mark.fault(25)
@pytest.mark.req("DEC-04")
@pytest.mark.parametrize("off_s", [3600.0, -3600.0], ids=["an hour ahead", "an hour behind"])
async def test_a_node_with_a_wrong_clock_neither_steals_nor_stalls(cluster: Cluster, off_s: float) -> None:
    right = await cluster.start()
    wrong = await cluster.start(first=clock_off_by(off_s))
    await cluster.furnish("ops", "it", "night", "desk", retry_delay_s=DELAY_S)
    # Each mail is refused once, and then its answer takes longer than a lease that is not renewed.
    cluster.mail.on("rcpt").reply(451, "4.2.1 busy").times(8, per="address")
    answered = asyncio.Event()
    cluster.mail.on("dot").wait(answered)
    async with cluster.sender(wrong, right) as sender:
        await sender.send(32, "ops", "it", "night", "desk", batch=4)
        await cluster.mail.saw("dot", 32, timeout_s=60)
        flights = {row["id"]: row["lease_until"] for row in await cluster.until_in_flight(32)}
        await cluster.until_clock_passed(max(flights.values()))
        stolen = {row["id"] for row in await cluster.in_flight()} ^ flights.keys()
        answered.set()
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert stolen == set()
    assert verdict.is_whole
    assert verdict.duplicates == {}
    waits = await cluster.query(
        """
        select extract(epoch from second.started_at - first.finished_at)::float as wait_s
        from attempts first join attempts second using (notification_id)
        where first.claim_token = 1 and second.claim_token = 2
        """
    )
    assert len(waits) == 32
    assert all(DELAY_S <= row["wait_s"] <= DELAY_S + LEASE_S + SLACK_S for row in waits)
    owners = await cluster.query("select node_id, count(*) from attempts group by 1")
    assert {row["node_id"] for row in owners} == {right.node_id, wrong.node_id}
    assert await cluster.query("select 1 from attempts where claim_token > 2") == []
    # The ids that a node makes hold its own time: that clock really was wrong.
    [entry] = await cluster.query(
        "select event_id, occurred_at from audit where source_node = $1 limit 1", wrong.node_id
    )
    made_at = (entry["event_id"].int >> 80) / 1000
    assert abs(made_at - entry["occurred_at"].timestamp() - off_s) < 60
    assert await cluster.broken_rules() == {}
