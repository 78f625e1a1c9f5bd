"""The history of the KPIs as it is kept and read."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, func, select

from fieldpost.central.store.figures import samples
from fieldpost.central.store.figures.samples import ALL_SITES
from fieldpost.central.store.schema.node_tables import samples as table
from fieldpost.core.kpi import KPIS, NOTHING, Snapshot
from support.centre import Centre

BEGIN = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def keep(centre: Centre, minute: int, **depths: float) -> bool:
    at = BEGIN + minute * MINUTE
    of_sites = {site: {**NOTHING, "queue_depth": depth} for site, depth in depths.items()}
    return await centre.store.write(samples.add, at, Snapshot(at, of_sites))


async def history(
    centre: Centre, site: str = ALL_SITES, kpi: str = "queue_depth", minutes: int = 60, step: timedelta = MINUTE
) -> list[tuple[int, float]]:
    """The values by minute."""
    end = BEGIN + minutes * MINUTE
    found = await centre.store.read(samples.history, kpi, site, begin=BEGIN, end=end, step=step)
    return [((at - BEGIN) // MINUTE, value) for at, value in found]


@pytest.mark.req("DEC-17")
async def test_history_has_each_minute_of_all_sites_and_of_each(centre: Centre) -> None:
    await keep(centre, 0, north=2, south=1)
    await keep(centre, 1, north=3, south=0)
    await keep(centre, 3, north=0, south=0)
    assert await history(centre) == [(0, 3), (1, 3), (3, 0)]
    assert await history(centre, "north") == [(0, 2), (1, 3), (3, 0)]
    assert await history(centre, "south") == [(0, 1), (1, 0), (3, 0)]
    assert await history(centre, "never heard of") == [(0, 0), (1, 0), (3, 0)]


async def test_site_without_figures_is_not_stored(centre: Centre) -> None:
    await keep(centre, 0, north=2, south=0, west=0)

    def count(conn: Connection) -> int:
        return conn.execute(select(func.count()).select_from(table)).scalar_one()

    assert await centre.store.read(count) == 2


async def test_time_is_sampled_once(centre: Centre) -> None:
    assert await keep(centre, 0, north=2)
    assert not await keep(centre, 0, north=9)
    assert await history(centre, "north") == [(0, 2)]


async def test_a_coarser_history_keeps_the_peaks(centre: Centre) -> None:
    for minute, depth in enumerate([0, 1, 7, 2, 0, 0, 5, 0]):
        await keep(centre, minute, north=depth)
    assert await history(centre, "north", step=4 * MINUTE) == [(0, 7), (4, 5)]
    assert await history(centre, "north", minutes=2, step=4 * MINUTE) == [(0, 1)]


async def test_kpi_newer_than_a_sample_is_missing_in_it(centre: Centre) -> None:
    await keep(centre, 0, north=2)
    assert await history(centre, kpi="invented_later") == [(0, 0)]


async def test_an_age_keeps_its_fraction(centre: Centre) -> None:
    at = BEGIN + MINUTE
    figures = {**NOTHING, "oldest_pending_age_s": 12.345678}
    await centre.store.write(samples.add, at, Snapshot(at, {"north": figures}))
    assert await history(centre, kpi="oldest_pending_age_s") == [(1, 12.345678)]


async def test_trends_equal_the_histories_of_each_kpi(centre: Centre) -> None:
    for minute in range(0, 50, 5):
        at = BEGIN + minute * MINUTE
        figures = {kpi.name: float((minute + 1) * (place + 3) % 17) for place, kpi in enumerate(KPIS)}
        await centre.store.write(samples.add, at, Snapshot(at, {"north": figures}))
    span = {"begin": BEGIN + 3 * MINUTE, "end": BEGIN + 43 * MINUTE, "step": 10 * MINUTE}
    trends = await centre.store.read(samples.trends, **span)
    assert list(trends) == [kpi.name for kpi in KPIS if kpi.formula is not None]
    for name, points in trends.items():
        assert len(points) == 4
        assert list(points) == list(await centre.store.read(samples.history, name, ALL_SITES, **span))
