"""A node that dies takes nothing with it: what it had in its hands is taken up when its leases are over."""

import pytest

from support.cluster import Cluster
from support.running_central import INTERVAL_S
from support.verdict import broken_rules

SLACK_S = 2.0
"""What a loaded machine may add."""


@pytest.mark.fault(22)
@pytest.mark.req("DEC-07")
async def test_what_a_killed_dispatcher_held_is_resumed_when_its_lease_is_over(cluster: Cluster) -> None:
    victim = await cluster.start()
    await cluster.furnish("ops", "it", "night")
    answers = cluster.mail.on("dot").keep_mail().hang()
    async with cluster.sender() as sender:
        await sender.send(30, "ops", "it", "night")
        await cluster.until_in_flight(24, victim)
        await cluster.mail.received(24)
        survivor = await cluster.start()
        held = await cluster.in_flight(victim)
        await victim.kill()
        orphans = {row["id"]: row for row in await cluster.in_flight(victim)}
        answers.withdraw()
        sender.use(survivor.url)
        await sender.send(30, "ops", "it", "night")
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert (len(held), len(orphans)) == (24, 24)
    assert verdict.is_whole
    assert verdict.copies_too_many == 24, "the mail server had these when the node died, and nobody knew"
    again = await cluster.query(
        "select notification_id::text as id, started_at, claim_token, node_id from attempts where claim_token > 1"
    )
    assert {row["id"] for row in again} == set(orphans)
    for row in again:
        waited_s = (row["started_at"] - orphans[row["id"]]["lease_until"]).total_seconds()
        assert 0 <= waited_s <= INTERVAL_S + SLACK_S
    assert {row["node_id"] for row in again} == {survivor.node_id}
    assert await broken_rules(cluster.url) == {}
