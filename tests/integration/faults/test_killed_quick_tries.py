"""A node that is killed between two quick tries of one attempt."""

import pytest

from fieldpost.core.events.event import notification_id_of
from fieldpost.testing import WebhookReceiver
from support.cluster import Cluster
from support.hook_cluster import HookCluster

TRIES_BEFORE = 3


@pytest.mark.fault(22)
@pytest.mark.dec("DEC-20", "DEC-46")
async def test_the_tries_of_a_killed_node_cost_no_attempt_and_another_node_delivers(cluster: Cluster) -> None:
    async with WebhookReceiver() as receiver:
        hooks = HookCluster(cluster, receiver)
        victim = await hooks.start()
        subscription_id = await hooks.subscribe("billing")
        receiver.on("billing").answer(503)
        [event_id] = await hooks.publish(1)
        await receiver.received(TRIES_BEFORE, "billing")
        await victim.kill()
        survivor = await hooks.start()
        receiver.behave()
        await receiver.accepted(1, "billing")
        await cluster.settle()

        expected = notification_id_of(event_id, subscription_id)
        webhooks = receiver.webhooks("billing")
        assert {one.webhook_id for one in webhooks} == {expected}
        assert [one.status for one in webhooks] == [*[503] * TRIES_BEFORE, 200], "one attempt, and no try too many"
        assert len({one.request.body for one in webhooks}) == 1
        assert receiver.forged == []
        [row] = await cluster.query("select status, retry_count, orphan_count from notifications")
        assert (row["status"], row["retry_count"]) == ("delivered", 0), "the unfinished attempt is not counted"
        attempts = await cluster.query("select node_id, outcome from attempts order by started_at")
        assert [one["outcome"] for one in attempts][1:] == ["delivered"]
        assert attempts[1]["node_id"] == survivor.node_id
        failures = await cluster.query("select failures from breakers where failures > 0")
        assert failures == [], "the breaker learnt nothing from tries whose outcome nobody knew"
        assert await cluster.broken_rules() == {}
