"""Epoch leases of sites with two nodes, in both stores."""

import asyncio
from datetime import timedelta

import pytest

from fieldpost.central.store.sites import epochs
from fieldpost.central.store.sites.epochs import LeaseResult
from fieldpost.core.pair.epoch_lease import EpochLease
from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre

pytestmark = [pytest.mark.req("DEC-39")]

SITE = "plant-7"


async def grant(centre: Centre, node: int, known: int = 0) -> LeaseResult:
    return await centre.store.write(epochs.grant, SITE, node, known, now=centre.store.now())


async def renew(centre: Centre, node: int, epoch: int) -> LeaseResult:
    return await centre.store.write(epochs.renew, SITE, node, epoch, now=centre.store.now())


async def test_epoch_is_granted_to_the_other_node_only_after_the_lease(centre: Centre, clock: ManualClock) -> None:
    first = EpochLease(epoch=2, node=0, until=clock.now() + timedelta(seconds=10))
    assert await grant(centre, 0, known=1) == LeaseResult(first, True, is_switch=True)
    clock.advance(9.999999)
    assert await grant(centre, 1, known=2) == LeaseResult(first, False)
    clock.advance(0.000001)
    second = EpochLease(epoch=3, node=1, until=clock.now() + timedelta(seconds=10))
    assert await grant(centre, 1, known=2) == LeaseResult(second, True, is_switch=True)
    assert await renew(centre, 0, 2) == LeaseResult(second, False)
    assert await centre.store.read(epochs.get, SITE) == second


async def test_renewal_keeps_the_epoch(centre: Centre, clock: ManualClock) -> None:
    await grant(centre, 0, known=1)
    for _ in range(4):
        clock.advance(9)
        renewed = await renew(centre, 0, 2)
        assert renewed.is_granted
        assert (await grant(centre, 1, known=2)).is_granted is False


async def test_released_epoch_is_free_at_once(centre: Centre) -> None:
    await grant(centre, 0, known=1)
    assert not (await centre.store.write(epochs.give_back, SITE, 1, 3)).is_granted
    assert (await centre.store.write(epochs.give_back, SITE, 0, 2)).is_granted
    assert not (await renew(centre, 0, 2)).is_granted
    granted = await grant(centre, 1, known=2)
    assert granted.is_granted
    assert granted.lease is not None
    assert granted.lease.epoch == 3


async def test_epoch_taken_without_central_is_adopted(centre: Centre, clock: ManualClock) -> None:
    await grant(centre, 0, known=1)
    assert not (await renew(centre, 1, 5)).is_granted
    clock.advance(10)
    adopted = await renew(centre, 1, 5)
    assert adopted.lease is not None
    assert (adopted.is_granted, adopted.lease.epoch, adopted.lease.is_taken) == (True, 5, True)
    assert not (await renew(centre, 0, 2)).is_granted


@pytest.mark.parametrize("is_first", [True, False])
async def test_of_two_nodes_that_ask_at_once_one_gets_the_epoch(
    centre: Centre, clock: ManualClock, is_first: bool
) -> None:
    if not is_first:
        await grant(centre, 0, known=1)
        clock.advance(10)
    found = await asyncio.gather(*(grant(centre, number % 2, known=3) for number in range(8)))
    holders = {(one.lease.node, one.lease.epoch) for one in found if one.is_granted and one.lease is not None}
    stored = await centre.store.read(epochs.get, SITE)
    assert stored is not None
    assert holders == {(stored.node, stored.epoch)}


async def test_on_postgresql_the_clock_of_the_database_decides(pg_url: str) -> None:
    async with open_centre(pg_url) as one:
        granted = await one.store.write(epochs.grant, SITE, 0, 1, now=None)
        assert granted.lease is not None
        assert granted.lease.until is not None
        assert abs(granted.lease.until - one.clock.now()) > timedelta(days=30)
        assert not (await one.store.write(epochs.grant, SITE, 1, 2, now=None)).is_granted
