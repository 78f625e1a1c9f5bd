"""Leases of the whole centre: one owner at a time, by the database's clock."""

import asyncio
from datetime import timedelta

import pytest

from fieldpost.central.store.figures import leases
from fieldpost.central.store.figures.leases import LEADER, Lease
from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre


async def take(centre: Centre, owner: str, lease_s: float = 15) -> Lease | None:
    return await centre.store.write(leases.take, LEADER, owner, lease_s=lease_s, now=centre.store.now())


@pytest.mark.req("DEC-06")
async def test_lease_is_granted_to_another_only_after_it_expired(centre: Centre, clock: ManualClock) -> None:
    assert await take(centre, "a") == Lease(LEADER, "a", clock.now() + timedelta(seconds=15), 1)
    clock.advance(14.999999)
    assert await take(centre, "b") is None
    clock.advance(0.000001)
    assert await take(centre, "b") == Lease(LEADER, "b", clock.now() + timedelta(seconds=15), 2)
    assert await take(centre, "a") is None


@pytest.mark.req("DEC-06")
async def test_owner_renews_a_lease_under_the_same_token(centre: Centre, clock: ManualClock) -> None:
    for _ in range(4):
        lease = await take(centre, "a")
        assert lease == Lease(LEADER, "a", clock.now() + timedelta(seconds=15), 1)
        clock.advance(10)
        assert await take(centre, "b") is None


async def test_lease_has_one_winner_among_concurrent_requests(centre: Centre) -> None:
    found = await asyncio.gather(*(take(centre, f"node-{number}") for number in range(8)))
    (winner,) = [lease for lease in found if lease is not None]
    assert await centre.store.read(leases.all_leases) == [winner]


async def test_released_lease_is_free_at_once_and_only_its_owner_can_release(centre: Centre) -> None:
    await take(centre, "a")
    await centre.store.write(leases.release, LEADER, "b", now=centre.store.now())
    assert await take(centre, "b") is None
    await centre.store.write(leases.release, LEADER, "a", now=centre.store.now())
    lease = await take(centre, "b")
    assert lease is not None
    assert (lease.owner, lease.token) == ("b", 2)


async def test_voided_leases_are_free_at_once(centre: Centre) -> None:
    await take(centre, "a")
    await centre.store.write(leases.void_all, now=centre.store.now())
    assert await take(centre, "b") is not None


@pytest.mark.req("DEC-04", "DEC-06")
async def test_on_postgresql_leases_use_the_clock_of_the_database(pg_url: str) -> None:
    """Of two nodes on one database none takes the other's lease early, however wrong its own clock is."""
    async with open_centre(pg_url) as one:
        lease = await one.store.write(leases.take, LEADER, "a", lease_s=15, now=None)
        assert lease is not None
        assert await one.store.write(leases.take, LEADER, "b", lease_s=15, now=None) is None
        assert abs(lease.lease_until - one.clock.now()) > timedelta(days=30), "the node's clock stands in January"
