"""The lead among real nodes on one PostgreSQL: one has it, and another soon after it is gone."""

import pytest

from support.cluster import Cluster, started_together
from support.running_central import RunningCentral, until

LEASE_S = 4.0
QUICK = {
    "FIELDPOST_UPKEEP__LEASE_S": str(LEASE_S),
    "FIELDPOST_UPKEEP__RENEW_S": "0.5",
    "FIELDPOST_UPKEEP__SAMPLE_INTERVAL_S": "1",
}


async def leader(cluster: Cluster) -> str | None:
    found = await cluster.query("select owner from leases where name = 'leader' and lease_until > clock_timestamp()")
    return str(found[0]["owner"]) if found else None


async def roles(cluster: Cluster) -> tuple[RunningCentral, RunningCentral]:
    """Two nodes: the one that leads, and the other."""
    nodes = await started_together(cluster, 2, environment=QUICK)
    owner = await until(lambda: leader(cluster), 20, "a leader")
    first, second = sorted(nodes, key=lambda node: node.node_id != owner)
    assert first.node_id == owner
    return first, second


async def samples(cluster: Cluster) -> int:
    found = await cluster.query("select count(*) as count from samples")
    return int(found[0]["count"])


@pytest.mark.req("DEC-06", "DEC-17")
async def test_lead_moves_when_the_leader_is_killed_and_its_work_continues(cluster: Cluster) -> None:
    first, second = await roles(cluster)
    await first.until_logged("purge.finished")
    await until(lambda: samples(cluster), 20, "a sample")
    assert second.events("purge.finished") == []
    await first.kill()

    async def has_moved() -> bool:
        return await leader(cluster) == second.node_id

    await until(has_moved, 20, "the other node to lead")
    await second.until_logged("purge.finished")
    before = await samples(cluster)

    async def goes_on() -> bool:
        return await samples(cluster) > before

    await until(goes_on, 20, "the next sample")
    tokens = await cluster.query("select token from leases where name = 'leader'")
    assert [row["token"] for row in tokens] == [2]


@pytest.mark.req("DEC-06")
async def test_leader_that_stops_in_order_is_replaced_at_once(cluster: Cluster) -> None:
    first, second = await roles(cluster)
    assert await first.stop() == 0
    resigned = await cluster.query("select lease_until <= clock_timestamp() as is_over, owner from leases")
    assert [(row["is_over"] or row["owner"] == second.node_id) for row in resigned] == [True]
    await second.until_logged("leader.elected")


@pytest.mark.req("DEC-06", "DEC-04")
async def test_leader_paused_past_its_lease_no_longer_leads(cluster: Cluster) -> None:
    first, second = await roles(cluster)
    first.pause()
    try:
        await second.until_logged("leader.elected")
    finally:
        first.resume()
    await first.until_logged("leader.lost")
    assert await leader(cluster) == second.node_id
