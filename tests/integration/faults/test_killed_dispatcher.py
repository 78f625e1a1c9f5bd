"""A node that dies takes nothing with it: what it had in its hands is taken up when its leases are over."""

from collections import Counter

import pytest

from support.cluster import Cluster
from support.ordeals import drained_with_a_death
from support.running_central import INTERVAL_S

SLACK_S = 15.0
"""What a loaded machine may add; a node that waited for what its settings say by themselves would take minutes."""


@pytest.mark.fault(22)
@pytest.mark.req("CFG-11", "DEC-01", "DEC-07")
async def test_rows_of_a_killed_dispatcher_are_resumed_after_their_lease(cluster: Cluster) -> None:
    victim = await cluster.start()
    await cluster.furnish("ops", "it", "night")
    cluster.mail.on("dot").keep_mail().hang().times(24)
    async with cluster.sender() as sender:
        await sender.send(30, "ops", "it", "night")
        await cluster.until_in_flight(24, victim)
        await cluster.mail.received(24)
        survivor = await cluster.start()
        held = await cluster.in_flight(victim)
        await victim.kill()
        orphans = {row["id"]: row for row in await cluster.in_flight(victim)}
        statuses = await cluster.query(
            "select distinct status from notifications where notification_id = any($1::uuid[])", list(orphans)
        )
        assert [row["status"] for row in statuses] == ["pending"], "a claim is not a status"
        sender.use(survivor.url)
        await sender.send(30, "ops", "it", "night")
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert (len(held), len(orphans)) == (24, 24)
    assert verdict.is_whole
    assert verdict.copies_too_many == 24, "the mail server had these when the node died, and nobody knew"
    copies = Counter(mail.message_id for mail in cluster.mail.mails)
    assert sorted(copies.values()) == [1] * 36 + [2] * 24, "a second copy can be recognised as one"
    again = await cluster.query(
        "select notification_id::text as id, started_at, claim_token, node_id from attempts where claim_token > 1"
    )
    assert {row["id"] for row in again} == set(orphans)
    for row in again:
        waited_s = (row["started_at"] - orphans[row["id"]]["lease_until"]).total_seconds()
        assert 0 <= waited_s <= INTERVAL_S + SLACK_S
    assert {row["node_id"] for row in again} == {survivor.node_id}
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(22)
@pytest.mark.req("CFG-10", "CFG-11", "DEC-01")
async def test_one_of_two_nodes_dies_and_the_other_finishes_the_backlog(cluster: Cluster) -> None:
    """The short form; tests/chaos drains twenty thousand."""
    drain = await drained_with_a_death(cluster, 2000)
    assert (drain.verdict.is_whole, drain.verdict.delivered) == (True, 2000)
    assert drain.verdict.copies_too_many <= drain.in_flight
    assert drain.resumed_s <= INTERVAL_S + SLACK_S
    assert await cluster.broken_rules() == {}
