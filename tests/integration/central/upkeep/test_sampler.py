"""The KPIs of every minute are kept, by the leading node."""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost.central.store.figures import samples
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.central.upkeep.sampler import Sampler
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.kpi import Thresholds
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre

MINUTE = timedelta(minutes=1)
DAY_S = 86_400.0


async def sampler_of(centre: Centre, **options: Any) -> Sampler:
    made = UpkeepOptions(**options)
    leader = Leader(centre.store, "node-1", centre.clock, made)
    assert await leader.campaign()
    return Sampler(centre.store, centre.clock, leader, Thresholds(), made)


async def history(centre: Centre, kpi: str, begin: datetime, site: str = "") -> list[tuple[datetime, float]]:
    end = begin + timedelta(days=365)
    return list(await centre.store.read(samples.history, kpi, site, begin=begin, end=end, step=MINUTE))


@pytest.mark.req("DEC-17", "KPI-01", "TBL-16")
async def test_every_minute_is_sampled_with_a_row_per_site(mailing: Centre, clock: ManualClock) -> None:
    sampler = await sampler_of(mailing)
    begin = clock.now()
    await mailing.send_many(2)
    await mailing.send(site="north")
    clock.advance(30)
    await sampler.sweep()
    mailing.adapter.always["ops"] = PermanentFailure("550 unknown")
    await mailing.deliver()
    clock.advance(45)
    await sampler.sweep()
    minutes = [begin, begin + MINUTE]
    assert await history(mailing, "queue_depth", begin) == [(minutes[0], 3), (minutes[1], 0)]
    assert await history(mailing, "queue_depth", begin, SITE) == [(minutes[0], 2), (minutes[1], 0)]
    assert await history(mailing, "parked", begin, SITE) == [(minutes[0], 0), (minutes[1], 2)]
    assert await history(mailing, "parked", begin, "north") == [(minutes[0], 0), (minutes[1], 1)]
    assert await history(mailing, "oldest_pending_age_s", begin) == [(minutes[0], 30), (minutes[1], 0)]


@pytest.mark.req("DEC-17")
async def test_a_leading_node_samples_once_in_every_minute(centre: Centre, clock: ManualClock) -> None:
    sampler = await sampler_of(centre, lease_s=10 * DAY_S)
    begin = clock.now()
    clock.advance(17.5)
    running = asyncio.create_task(sampler.run())
    for _ in range(3):
        await clock.wait_sleepers(1)
        wait = clock.next_wake_in_s()
        assert wait is not None
        clock.advance(wait)
        await asyncio.sleep(0)
    await clock.wait_sleepers(1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert [at for at, _ in await history(centre, "queue_depth", begin)] == [begin + n * MINUTE for n in range(4)]


async def test_failed_sample_is_logged_and_the_next_one_taken(centre: Centre, clock: ManualClock) -> None:
    sampler = await sampler_of(centre, lease_s=10 * DAY_S)
    begin = clock.now()
    await centre.execute("alter table samples rename to gone")
    with capture_logs() as logs:
        running = asyncio.create_task(sampler.run())
        await clock.wait_sleepers(1)
        await centre.execute("alter table gone rename to samples")
        clock.advance(60)
        await asyncio.sleep(0)
        await clock.wait_sleepers(1)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert [line["event"] for line in logs] == ["sample.faulted"]
    assert [at for at, _ in await history(centre, "queue_depth", begin)] == [begin + MINUTE]


@pytest.mark.req("DEC-17")
async def test_samples_are_kept_ninety_days(centre: Centre, clock: ManualClock) -> None:
    leader = Leader(centre.store, "node-1", clock)
    assert await leader.campaign()
    sampler = await sampler_of(centre)
    await sampler.sweep()
    clock.advance(1 * DAY_S)
    await sampler.sweep()
    clock.advance(89 * DAY_S + 1)
    assert await leader.campaign()
    assert await Purge(centre.store, clock, leader).sweep()

    def count(conn: Connection) -> int:
        return conn.execute(text("select count(*) from samples")).scalar_one()

    assert await centre.store.read(count) == 1
