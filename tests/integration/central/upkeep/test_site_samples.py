"""The health of sites: the newest report, its history, and what goes after its time."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Connection, func, select

from fieldpost.central.operate.intents import Intents
from fieldpost.central.operate.sites import SiteActions
from fieldpost.central.store.schema import site_tables as tables
from fieldpost.central.store.sites import cached_calls, health, intents
from fieldpost.central.upkeep.upkeep import CentralUpkeep
from fieldpost.central.watch.sites import SiteReader
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import InvalidInput, NotFound
from fieldpost.core.ids import new_id
from fieldpost.core.kpi import Thresholds
from fieldpost.core.sites.health import Freshness, LinkState
from fieldpost.core.sites.intent import IntentKind
from fieldpost.core.sites.message import CallReport, CallStatus, Category
from fieldpost.core.times import to_text
from fieldpost.link.messages import Health
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre

ADMIN = Actor("ada", Role.ADMIN)


@pytest.fixture
async def sites(centre: Centre) -> SiteReader:
    await SiteActions(centre.store, centre.clock).add(ADMIN, SITE)
    return SiteReader(centre.store, centre.clock, Freshness())


def a_report(clock: ManualClock, **more: object) -> Health:
    given: dict[str, object] = {"sent_at": to_text(clock.now()), "version": "1.0", "backlog": {"notification": 0}}
    return Health(**given | more)  # type: ignore[arg-type]


async def sample(centre: Centre) -> None:
    upkeep = CentralUpkeep.over(centre.store, "node-1", centre.clock, Thresholds())
    await upkeep.sampler.sweep()


async def count(centre: Centre, table: str) -> int:
    def counted(conn: Connection) -> int:
        return int(conn.execute(select(func.count()).select_from(tables.metadata.tables[table])).scalar_one())

    return await centre.store.read(counted)


@pytest.mark.req("SF-21", "DEC-26")
async def test_the_newest_report_of_a_site_is_shown_with_its_backlog(
    centre: Centre, sites: SiteReader, clock: ManualClock
) -> None:
    state, _ = await sites.one(SITE)
    assert (state.link, state.health) == (LinkState.OFFLINE, None)
    told = a_report(
        clock,
        backlog={"notification": 1200, "external_call": 3},
        oldest_age_s=77.5,
        parked=2,
        rejected=1,
        disk_free_bytes=5_000_000,
        events={"error": 4},
        is_forwarding=False,
        forward_error="central cannot be reached",
        failing_for_s=60.0,
        sent_at=to_text(clock.now() + timedelta(seconds=90)),
    )
    await centre.ingest.health.keep(SITE, told)
    state, _ = await sites.one(SITE)
    assert state.link is LinkState.ONLINE
    assert state.health is not None
    report = state.health.report
    assert (report.backlog, report.depth) == ({"notification": 1200, "external_call": 3}, 1203)
    assert (report.oldest_age_s, report.parked, report.rejected, report.disk_free_bytes) == (77.5, 2, 1, 5_000_000)
    assert (report.events, report.is_forwarding, report.failing_for_s) == ({"error": 4}, False, 60.0)
    assert state.health.clock_offset_s == 90
    await centre.ingest.health.keep(SITE, a_report(clock))
    state, _ = await sites.one(SITE)
    assert state.health is not None
    assert state.health.report.depth == 0


@pytest.mark.req("DEC-26")
async def test_a_site_is_online_then_late_then_offline_as_its_report_grows_old(
    centre: Centre, sites: SiteReader, clock: ManualClock
) -> None:
    await centre.ingest.health.keep(SITE, a_report(clock))
    for seconds, link in ((45, "online"), (1, "late"), (14, "late"), (1, "offline")):
        clock.advance(seconds)
        state, _ = await sites.one(SITE)
        assert state.link is LinkState(link)


@pytest.mark.parametrize(
    "more",
    [{"parked": -1}, {"backlog": {str(n): 1 for n in range(17)}}, {"disk_free_bytes": 2**60}, {"events": {"a": -1}}],
)
async def test_impossible_report_is_rejected(
    centre: Centre, sites: SiteReader, clock: ManualClock, more: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput):
        await centre.ingest.health.keep(SITE, a_report(clock, **more))
    assert (await sites.one(SITE))[0].health is None


async def test_history_has_changes_by_the_minute_and_quiet_times_by_the_hour(
    centre: Centre, sites: SiteReader, clock: ManualClock
) -> None:
    begin = clock.now()
    for minute in range(150):
        depth = 7 if 30 <= minute < 33 else 0
        await centre.ingest.health.keep(SITE, a_report(clock, backlog={"notification": depth}))
        await sample(centre)
        await sample(centre)  # a second one of the same minute adds nothing
        clock.advance(60)
        assert minute < 150
    found = await sites.history(SITE, begin - timedelta(minutes=1), clock.now())
    told = [(round((at - begin) / timedelta(minutes=1)), figures.depth) for at, figures in found.points]
    assert told == [(0, 0), (30, 7), (31, 7), (32, 7), (33, 0), (93, 0)]
    assert found.is_whole
    clock.advance(60)
    await sample(centre)
    found = await sites.history(SITE, clock.now() - timedelta(minutes=2), clock.now() + timedelta(minutes=1))
    assert [figures.state for _, figures in found.points] == ["offline"]


async def test_history_of_an_unknown_site_or_an_impossible_time_is_an_error(
    sites: SiteReader, clock: ManualClock
) -> None:
    with pytest.raises(NotFound):
        await sites.history("south")
    with pytest.raises(InvalidInput):
        await sites.history(SITE, clock.now(), clock.now())


def a_call(status: CallStatus, at: datetime) -> CallReport:
    return CallReport(
        call_id=new_id(at, bytes(range(10)) if status is CallStatus.PARKED else bytes(10)),
        category=Category.EXTERNAL_CALL,
        target_summary="erp POST /orders",
        status=status,
        retry_count=0,
        last_error="503",
        http_status=None,
        instance=None,
        script=None,
        execution_id=None,
        parent_execution_id=None,
        created_at=at,
        updated_at=at,
        terminal_at=at if status.is_terminal else None,
        version=1,
    )


@pytest.mark.req("TRK-13")
async def test_reports_of_sites_are_purged_after_their_retention_and_live_calls_never(
    centre: Centre, sites: SiteReader, clock: ManualClock
) -> None:
    """The long-term record of a cached call is central's: a year, where the site keeps a week."""
    reports = [a_call(CallStatus.DELIVERED, clock.now()), a_call(CallStatus.PARKED, clock.now())]
    await centre.store.write(cached_calls.apply, SITE, "first", 1, reports, sent_at=clock.now(), now=clock.now())
    acts = Intents(centre.store, clock)
    done, _waits = await acts.create(ADMIN, SITE, IntentKind.RETRY, message_ids=[report.call_id for report in reports])
    await acts.cancel(ADMIN, done.intent_id)
    await centre.ingest.health.keep(SITE, a_report(clock))
    await sample(centre)
    upkeep = CentralUpkeep.over(centre.store, "node-1", clock, Thresholds())
    tables_ = ("cached_calls", "intents", "site_health_samples", "site_health")
    for days, left in ((89, [2, 2, 1, 1]), (2, [2, 2, 0, 1]), (273, [2, 2, 0, 1]), (2, [1, 1, 0, 1])):
        clock.advance(days * 86400)
        await upkeep.leader.campaign()
        await upkeep.purge.sweep()
        assert [await count(centre, table) for table in tables_] == left
    assert await centre.store.read(cached_calls.get, SITE, reports[1].call_id) is not None
    assert await centre.store.read(intents.open_counts) == {SITE: 1}
    assert await centre.store.read(health.get, SITE) is not None
