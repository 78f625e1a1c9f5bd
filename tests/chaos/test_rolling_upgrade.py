"""Nodes of this version and of a made-up next one on the same store, which the newer one migrates in mid-run."""

import asyncio

import pytest

from support.cluster import Cluster
from support.running_central import RunningCentral
from support.verdict import Verdict

LISTS = [f"list-{number}" for number in range(4)]
# The next version is this one with one more migration (tests/integration/central/store/next_version).
NEWER = (
    "from pathlib import Path; from fieldpost.central.store.schema import migrate; "
    "migrate.VERSIONS_OF_NEXT = (migrate.VERSIONS, Path({folder!r})); "
    "migrate.upgrade_async.__defaults__ = migrate.schema_of.__defaults__ = (migrate.VERSIONS_OF_NEXT,); "
)


@pytest.mark.timeout(300)
@pytest.mark.fault(58)
async def test_old_and_new_nodes_work_side_by_side_and_lose_nothing(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    folder = request.config.rootpath / "tests/integration/central/store/next_version"
    (migration,) = folder.glob("m*.py")
    old = await cluster.start()
    await cluster.furnish(*LISTS)
    stop = asyncio.Event()
    async with cluster.sender() as sender:
        sending = asyncio.create_task(sender.send_until(stop, cluster.mail, *LISTS))
        try:
            await delivered(cluster, 100)
            new = await cluster.start(first=NEWER.format(folder=str(folder)))
            assert await revision(cluster) == migration.stem.partition("_")[0]
            sender.use(old.url, new.url)
            await until_both_deliver(cluster, old, new)
            assert await old.stop() == 0
            sender.use(new.url)
            await delivered(cluster, 100)
        finally:
            stop.set()
            await sending
        await cluster.settle()
        verdict: Verdict = await cluster.verdict(sender)
    assert (verdict.is_whole, verdict.duplicates) == (True, {})
    assert await cluster.broken_rules() == {}
    (row,) = await cluster.query("select count(*) as count from notifications where severity is null")
    assert row["count"] > 0, "the old node took in notifications after the migration"


async def delivered(cluster: Cluster, more: int) -> None:
    enough = cluster.mail.mail_count + more
    await cluster.mail.until(lambda: cluster.mail.mail_count >= enough, timeout_s=60, what="deliveries")


async def revision(cluster: Cluster) -> str:
    (row,) = await cluster.query("select version_num from alembic_version")
    return str(row["version_num"])


async def until_both_deliver(cluster: Cluster, *nodes: RunningCentral) -> None:
    """Until each node has delivered twenty notifications that arrived after the migration."""
    (since,) = await cluster.query("select clock_timestamp() as now")
    counted = "select node_id, count(*) from attempts where started_at > $1 and finished_at is not null group by 1"
    while True:
        found = {row["node_id"]: row["count"] for row in await cluster.query(counted, since["now"])}
        if all(found.get(node.node_id, 0) >= 20 for node in nodes):
            return
        await delivered(cluster, 20)
