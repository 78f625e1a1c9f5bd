"""The clock of one of two nodes is wrong by an hour, by libfaketime: whatever the process asks, it is told wrongly."""

import shutil

import pytest

from support.cluster import Cluster
from support.need import cannot_have
from support.ordeals import LISTS
from support.running_central import LEASE_S
from support.verdict import broken_rules

pytestmark = pytest.mark.timeout(600)
DELAY_S = 2.0


@pytest.mark.fault(25)
@pytest.mark.req("DEC-04")
@pytest.mark.parametrize("off", ["+1h", "-1h"])
async def test_a_node_whose_machine_has_the_wrong_time_neither_steals_nor_stalls(cluster: Cluster, off: str) -> None:
    faketime = shutil.which("faketime") or cannot_have("no faketime (on Debian: apt-get install faketime)")
    await cluster.start()
    await cluster.start(before=(faketime, "-m", "-f", off))
    await cluster.furnish(*LISTS, retry_delay_s=DELAY_S)
    cluster.mail.on("dot").reply(451, "4.2.1 busy").times(1, per="message")
    async with cluster.sender() as sender:
        await sender.send(1000, *LISTS, batch=50)
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    attempts = await cluster.query("select node_id, count(*) from attempts group by 1")
    assert len(attempts) == 2
    assert sum(row["count"] for row in attempts) == 2000, "one that is refused and one that is not, for each"
    [waits] = await cluster.query(
        """
        select min(second.started_at - first.finished_at) as least, max(second.started_at - first.finished_at) as most
        from attempts first join attempts second using (notification_id)
        where first.claim_token = 1 and second.claim_token = 2
        """
    )
    assert waits["least"].total_seconds() >= DELAY_S
    assert waits["most"].total_seconds() <= DELAY_S + LEASE_S
    assert await broken_rules(cluster.url) == {}
