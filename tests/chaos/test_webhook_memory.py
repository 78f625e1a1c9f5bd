"""The memory of a node with a large backlog of webhooks, and with many large ones in flight."""

import asyncio

import pytest

from fieldpost.core.events.event import PAYLOAD_BYTES_MAX
from fieldpost.testing import WebhookReceiver
from support.cluster import Cluster
from support.hook_cluster import HookCluster
from support.memory import MEBIBYTE, peak_resident_bytes
from support.running_central import until

SUBSCRIPTIONS = 200
HOSTS = [f"127.0.1.{number}" for number in range(1, 11)]
"""A host gets at most 32 deliveries at once."""
BACKLOG = 100_000
DELIVERED = 10_000
BACKLOG_MAX = 300 * MEBIBYTE
LARGE_MAX = 400 * MEBIBYTE
SLOTS = 200


async def subscribe_all(hooks: HookCluster, *, is_apart: bool) -> list[str]:
    """Subscriptions on all hosts, to one topic or each to its own."""
    names = [f"r{number}" for number in range(SUBSCRIPTIONS)]
    for number, name in enumerate(names):
        url = hooks.receiver.url(name, HOSTS[number % len(HOSTS)])
        await hooks.subscribe(name, name if is_apart else "orders.created", url)
    return names


@pytest.mark.timeout(600)
@pytest.mark.needs("linux")
@pytest.mark.fault(55)
async def test_a_hundred_thousand_due_webhooks_fit_into_300_megabytes(cluster: Cluster) -> None:
    async with WebhookReceiver(host="0.0.0.0") as receiver:
        hooks = HookCluster(cluster, receiver)
        node = await hooks.start(FIELDPOST_DISPATCH__LEASE_S="60")
        names = await subscribe_all(hooks, is_apart=False)
        await node.stop()
        await hooks.publish(BACKLOG // SUBSCRIPTIONS, payload='{"text": "' + "x" * 900 + '"}')
        await cluster.query("analyze notifications")
        await node.start()
        claimed_max = 0
        while sum(len(receiver.ids(name)) for name in names) < DELIVERED:
            [row] = await cluster.query("select count(*) from notifications where claim_owner is not null")
            claimed_max = max(claimed_max, row["count"])
        peak = peak_resident_bytes(node.pid)
        print(f"{BACKLOG} due webhooks: {peak / MEBIBYTE:.0f} MB, {claimed_max} claimed at once")
        assert peak <= BACKLOG_MAX
        assert 0 < claimed_max <= 2 * SLOTS, "claims are made for free slots only"
        assert [receiver.second_copies(name) for name in names] == [[]] * len(names)
        assert node.surprises() == []


@pytest.mark.timeout(600)
@pytest.mark.needs("linux")
async def test_two_hundred_deliveries_of_256_kib_in_flight_fit_into_400_megabytes(cluster: Cluster) -> None:
    async with WebhookReceiver(host="0.0.0.0") as receiver:
        hooks = HookCluster(cluster, receiver)
        node = await hooks.start(FIELDPOST_DISPATCH__LEASE_S="60")
        names = await subscribe_all(hooks, is_apart=True)
        let_go = asyncio.Event()
        for name in names:
            receiver.on(name).wait(let_go)
        payload = '{"text": "' + "x" * (PAYLOAD_BYTES_MAX - 12) + '"}'
        await hooks.publish_topics(names, payload)
        await receiver.server.until(
            lambda: all(map(receiver.webhooks, names)), timeout_s=25, what="all deliveries to be in flight"
        )
        peak = peak_resident_bytes(node.pid)
        print(f"{SUBSCRIPTIONS} deliveries of {len(payload)} bytes in flight: {peak / MEBIBYTE:.0f} MB")
        let_go.set()
        await cluster.settle()
        assert max(peak, peak_resident_bytes(node.pid)) <= LARGE_MAX
        assert {len(receiver.ids(name)) for name in names} == {1}
        assert receiver.forged == []
        statuses = await until(lambda: cluster.query("select distinct status from notifications"))
        assert [row["status"] for row in statuses] == ["delivered"]
