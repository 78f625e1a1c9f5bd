"""One of two nodes stopped at a random statement: the other takes over. The short form; tests/chaos has fifty stops."""

import random

import pytest

from support.cluster import Cluster
from support.stops import check, stopped_at_statements


@pytest.mark.fault(23)
@pytest.mark.req("DEC-06", "DEC-07")
async def test_a_node_stopped_at_any_statement_keeps_no_row_longer_than_its_lease(cluster: Cluster) -> None:
    check(await stopped_at_statements(cluster, 5, random.Random(22)), 5)
    assert await cluster.broken_rules() == {}
