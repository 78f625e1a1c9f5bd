"""One of two nodes stopped at a random statement, fifty times. CHAOS_SEED=… repeats a run with its seed."""

import os
import random
import secrets

import pytest

from support.cluster import Cluster
from support.stops import check, stopped_at_statements


@pytest.mark.timeout(1800)
@pytest.mark.fault(23)
@pytest.mark.req("DEC-06", "DEC-07")
async def test_a_node_stopped_at_fifty_statements_keeps_no_row_longer_than_its_lease(cluster: Cluster) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbits(32))
    print(f"CHAOS_SEED={seed}")
    run = await stopped_at_statements(cluster, 50, random.Random(seed))
    print(
        f"{run.inside} stops inside a transaction, {len(run.resumed_s)} rows taken over,"
        f" {max(run.resumed_s):.2f} s after their lease, passed over for {run.passed_over_s:.2f} s,"
        f" no attempt for {run.stalled_s:.2f} s"
    )
    check(run, 50)
    assert await cluster.broken_rules() == {}
