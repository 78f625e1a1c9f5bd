"""KPIs and purge cost what waits, is parked or was just delivered; history costs them nothing."""

import re
from collections.abc import Mapping
from datetime import timedelta

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.engine.purging import BEGINNING, PurgeRange
from fieldpost.central.store.figures import kpis
from fieldpost.central.store.notifications import retention
from fieldpost.central.store.search import notifications
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import Status
from fieldpost.core.search.notification_filter import Filter
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.plans import fill, plans_of, reads_of

LIVE = 200
FEW, MANY = 2_000, 20_000
BY = Thresholds()


async def grow(centre: Centre, history: int) -> None:
    """So many more delivered rows, all of the day before the clock's."""

    def work(conn: Connection) -> None:
        fill(conn, f"old-{history}", history)
        conn.exec_driver_sql(
            "update notifications set status = 'delivered', delivered_at = created_at, terminal_at = created_at,"
            f" due_at = null where list_name = 'old-{history}'"
        )

    await centre.store.write(work)
    await centre.execute("analyze")


@pytest.fixture
async def grown(centre: Centre) -> Centre:
    """Some history, 200 live rows and 50 parked ones."""
    await grow(centre, FEW)
    await centre.store.write(fill, "live", LIVE)
    await centre.store.write(fill, "parked", 50)
    await centre.execute(
        "update notifications set status = 'parked', last_error = 'x', terminal_at = created_at, due_at = null"
        " where list_name = 'parked'"
    )
    return centre


async def reads(centre: Centre, clock: ManualClock) -> int:
    def work(conn: Connection) -> int:
        return reads_of(conn, lambda c: kpis.snapshot(c, BY, now=clock.now()))

    return await centre.store.write(work)


@pytest.mark.req("KPI-01")
async def test_kpis_read_no_more_when_history_grows(grown: Centre, clock: ManualClock) -> None:
    before = await reads(grown, clock)
    await grow(grown, MANY)
    after = await reads(grown, clock)
    # Rows read on PostgreSQL, thousands of steps on SQLite: a walk over the history would be 20,000 rows or 100 more.
    assert after <= before + (LIVE if grown.is_postgresql else 5)


@pytest.mark.req("KPI-01")
async def test_every_kpi_is_read_from_an_index_without_history_or_by_its_end(grown: Centre, clock: ManualClock) -> None:
    await grow(grown, MANY)

    def work(conn: Connection) -> list[str]:
        return plans_of(conn, lambda c: kpis.snapshot(c, BY, now=clock.now()))

    waiting, parked, delivered = await grown.store.write(work)
    assert "ix_notifications_waiting" in waiting
    assert "TEMP B-TREE" not in waiting, "SQLite counts by site as it lies, without sorting"
    assert "ix_notifications_undelivered" in parked
    assert "ix_notifications_terminal" in delivered
    assert re.search(r"terminal_at ?>", delivered), "from the window on, not from the beginning"


@pytest.mark.req("DEC-16")
@pytest.mark.parametrize("most", [notifications.FEW, LIVE // 2], ids=["few", "many"])
async def test_overdue_rows_are_found_without_reading_history(
    grown: Centre, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(notifications, "FEW", most)
    clock.advance(60)
    wanted = Filter(is_overdue=True).resolved(clock.now(), BY)
    assert wanted is not None
    found: list[notifications.Found] = []

    def look(conn: Connection) -> None:
        found.append(notifications.find(conn, wanted, limit=50))

    before = await grown.store.write(reads_of, look)
    await grow(grown, MANY)
    after = await grown.store.write(reads_of, look)
    assert after <= before + (LIVE if grown.is_postgresql else 5)
    overdue, looked_at, *_ = await grown.store.write(plans_of, look)
    assert re.search("ix_notifications_(claim|waiting)", overdue), "as the KPI: both hold live rows alone"
    is_walked = most < LIVE
    assert ("ix_notifications_undelivered" in looked_at) == is_walked, "each of the few, else by their status"
    assert {len(page.notifications) for page in found} == {50}


@pytest.mark.req("DEC-18")
async def test_batch_of_the_purge_reads_only_its_own_rows(grown: Centre, clock: ManualClock) -> None:
    """Also one late in the sweep: it goes on behind the last, instead of walking over what is gone."""
    await grow(grown, MANY)
    clock.advance(timedelta(days=366).total_seconds())
    span = PurgeRange(clock.now() - timedelta(days=365), BEGINNING, 100, clock.now())
    counts = []

    def work(conn: Connection) -> None:
        nonlocal span
        for _ in range(20):
            found: list[retention.PurgedBatch] = []
            counts.append(
                reads_of(conn, lambda c: found.append(retention.purge_notifications(c, span)))  # noqa: B023
            )
            assert found[0].deleted == 100
            assert found[0].after is not None
            span = PurgeRange(span.cutoff, found[0].after, 100, span.now)

    await grown.store.write(work)
    # A hundred rows are found, buried and deleted; on SQLite each of them with what belongs to it.
    assert max(counts) <= (5 * 100 if grown.is_postgresql else 60)
    assert counts[-1] <= 2 * counts[0] + 10


@pytest.mark.req("KPI-01")
async def test_counts_of_the_console_stop_at_a_maximum_with_any_history(centre: Centre) -> None:
    await grow(centre, MANY)
    await centre.store.write(fill, "live", LIVE)

    def work(conn: Connection) -> tuple[dict[Status, int], list[str]]:
        found: list[Mapping[Status, int]] = []
        plans = plans_of(conn, lambda c: found.append(kpis.count_by_status(c)))
        return dict(found[0]), plans

    counts, (plan,) = await centre.store.write(work)
    assert counts == {**dict.fromkeys(Status, 0), Status.PENDING: LIVE, Status.DELIVERED: kpis.COUNT_MAX}
    assert "ix_notifications_terminal" in plan
    assert plan.count("ix_notifications_undelivered") == len(Status) - 1
