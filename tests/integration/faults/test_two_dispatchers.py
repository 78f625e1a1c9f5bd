"""Two nodes dispatch from one table and never share a row."""

import pytest

from support.cluster import Cluster
from support.ordeals import two_dispatchers


@pytest.mark.fault(21)
@pytest.mark.req("DSP-01", "DEC-06")
async def test_two_dispatchers_deliver_each_notification_once(cluster: Cluster) -> None:
    verdict, attempts = await two_dispatchers(cluster, 1500)
    assert (verdict.is_whole, verdict.delivered, verdict.duplicates) == (True, 1500, {})
    assert sum(attempts.values()) == 1500, "a row claimed twice has two attempts"
    assert len(attempts) == 2, "both nodes dispatch"
    assert await cluster.broken_rules() == {}
