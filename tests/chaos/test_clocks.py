"""The clock of one of two nodes is wrong by an hour, by libfaketime: whatever the process asks, it is told wrongly."""

from pathlib import Path

import pytest

from support.cluster import Cluster
from support.need import cannot_have
from support.ordeals import LISTS
from support.running_central import LEASE_S

pytestmark = pytest.mark.timeout(600)
DELAY_S = 2.0
SLACK_S = 3.0
"""What a loaded machine may add."""


@pytest.fixture
def libfaketime() -> str:
    found = next(Path("/usr/lib").glob("**/faketime/libfaketime.so.1"), None)
    return str(found or cannot_have("faketime", "no libfaketime (on Debian: apt-get install libfaketime)"))


@pytest.mark.fault(25)
@pytest.mark.req("DEC-04")
@pytest.mark.parametrize("off", ["+1h", "-1h"])
async def test_a_node_whose_machine_has_the_wrong_time_neither_steals_nor_stalls(
    cluster: Cluster, libfaketime: str, off: str
) -> None:
    await cluster.start()
    wrong = await cluster.start(
        environment={"LD_PRELOAD": libfaketime, "FAKETIME": off, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    )
    await cluster.furnish(*LISTS, retry_delay_s=DELAY_S)
    cluster.mail.on("dot").reply(451, "4.2.1 busy").times(1, per="message")
    async with cluster.sender() as sender:
        await sender.send(100, *LISTS, batch=10)
        await cluster.settle()
        verdict = await cluster.verdict(sender)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    attempts = await cluster.query("select node_id, count(*) from attempts group by 1")
    assert len(attempts) == 2
    assert sum(row["count"] for row in attempts) == 200, "one that is refused and one that is not, for each"
    [waits] = await cluster.query(
        """
        select min(second.started_at - first.finished_at) as least, max(second.started_at - first.finished_at) as most
        from attempts first join attempts second using (notification_id)
        where first.claim_token = 1 and second.claim_token = 2
        """
    )
    assert waits["least"].total_seconds() >= DELAY_S
    assert waits["most"].total_seconds() <= DELAY_S + LEASE_S + SLACK_S
    # The ids that a node makes hold its own time: that clock really was wrong.
    [entry] = await cluster.query(
        "select event_id, occurred_at from audit where source_node = $1 limit 1", wrong.node_id
    )
    made_at = (entry["event_id"].int >> 80) / 1000
    assert abs(made_at - entry["occurred_at"].timestamp() - {"+1h": 3600, "-1h": -3600}[off]) < 60
    assert await cluster.broken_rules() == {}
