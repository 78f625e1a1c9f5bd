"""Nodes killed and paused again and again, under load. A failure tells its seed; CHAOS_SEED=… plays it again."""

import os
import random
import secrets

import pytest

from support.cluster import Cluster
from support.ordeals import drained_with_a_death, killed_again_and_again, paused_again_and_again, two_dispatchers
from support.running_central import INTERVAL_S, LEASE_S

pytestmark = pytest.mark.timeout(1800)
SLACK_S = 4.0
"""What a loaded machine may add."""


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbits(32))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


@pytest.mark.fault(21)
@pytest.mark.req("DEC-06")
async def test_two_dispatchers_deliver_ten_thousand_notifications_once_each(cluster: Cluster) -> None:
    verdict, attempts = await two_dispatchers(cluster, 10_000)
    assert (verdict.is_whole, verdict.delivered, verdict.duplicates) == (True, 10_000, {})
    assert sum(attempts.values()) == 10_000
    assert len(attempts) == 2
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(21)
@pytest.mark.req("DEC-06")
async def test_two_nodes_drain_twenty_thousand_notifications_once_each(cluster: Cluster) -> None:
    verdict, attempts = await two_dispatchers(cluster, 20_000)
    assert (verdict.is_whole, verdict.delivered, verdict.duplicates) == (True, 20_000, {})
    assert (sum(attempts.values()), len(attempts)) == (20_000, 2)
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(22)
@pytest.mark.req("CFG-10", "CFG-11", "DEC-01")
async def test_one_of_two_nodes_dies_and_the_other_finishes_twenty_thousand(cluster: Cluster) -> None:
    drain = await drained_with_a_death(cluster, 20_000)
    assert (drain.verdict.is_whole, drain.verdict.delivered) == (True, 20_000)
    assert drain.verdict.copies_too_many <= drain.in_flight
    assert drain.resumed_s <= INTERVAL_S + SLACK_S
    assert drain.finished_s <= LEASE_S + INTERVAL_S + SLACK_S
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(22)
@pytest.mark.req("CFG-11", "DEC-01", "DEC-07")
async def test_fifty_kills_lose_nothing(cluster: Cluster, rng: random.Random) -> None:
    verdict, copies_max = await killed_again_and_again(cluster, 50, rng)
    assert verdict.is_whole
    assert verdict.copies_too_many <= copies_max
    assert await cluster.broken_rules() == {}


@pytest.mark.fault(23)
@pytest.mark.req("DEC-03")
async def test_twenty_pauses_lose_nothing_and_revert_no_state(cluster: Cluster, rng: random.Random) -> None:
    await cluster.watch_statuses()
    verdict, copies_max = await paused_again_and_again(cluster, 20, rng)
    assert verdict.is_whole
    assert verdict.copies_too_many <= copies_max
    assert await cluster.steps_back() == []
    assert await cluster.broken_rules() == {}
