"""The health page: the figures at their stops, the worst trouble first, and how it was."""

import html
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fieldpost.central.operate.bulk_actions import Chosen
from fieldpost.central.store.figures import kpis, samples
from fieldpost.core.bulk import BulkVerb
from fieldpost.core.delivery.outcome import Held, TransientFailure
from fieldpost.core.kpi import Thresholds
from fieldpost.core.times import to_text
from fieldpost.front.console.kit.chart import SPANS
from fieldpost.link.messages import Health
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN, OPERATOR, Front, open_front
from support.hooks import Hooks

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On one database, for what no database answers otherwise than another."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


@pytest.mark.req("KPI-08", "DEC-16")
async def test_tiles_show_the_kpis_with_their_thresholds_and_link_to_the_rows(quick: Front) -> None:
    await quick.park()
    waiting = await quick.centre.send("ops")
    quick.clock.advance(11 * 60)
    page = await seen(quick)
    tiles = tiles_of(page.text)
    assert tiles["queue depth"] == ("/notifications?status=pending&amp;status=retrying", "1")
    assert tiles["stuck"] == ("/notifications?stuck=true", "1")
    assert tiles["parked"] == ("/notifications?status=parked", "1")
    assert tiles["overdue"] == ("/notifications?overdue=true", "1"), "nobody dispatches here"
    assert tiles["oldest pending"][1] == "11 min"
    assert tiles["delivered"] == ("/notifications?status=delivered", "0")
    for words in ("longer than 10 min", "due for longer than 20 s", "in the last minute"):
        assert words in page.text
    async with quick.client() as client:
        await log_in(quick, client)
        oldest = await client.get(tiles["oldest pending"][0].replace("&amp;", "&"))
    assert waiting in oldest.text


@pytest.mark.dec("DEC-52")
async def test_webhooks_have_separate_tiles_from_lists(quick: Front) -> None:
    hooks = Hooks(quick.centre, quick.clock)
    await hooks.subscribe()
    await hooks.publish(3)
    page = (await seen(quick)).text
    assert tiles_of(page)["webhooks"] == ("/notifications?kind=webhook&amp;status=delivered", "0")
    lists, webhooks = page.split('aria-label="Webhooks"')
    assert tiles_of(lists)["queue depth"] == ("/notifications?kind=list&amp;status=pending&amp;status=retrying", "0")
    path, count = tiles_of(webhooks)["queue depth"]
    assert (path, count) == ("/notifications?kind=webhook&amp;status=pending&amp;status=retrying", "3")
    async with quick.client() as client:
        await log_in(quick, client)
        shown = (await client.get(path.replace("&amp;", "&"))).text
        assert shown.count("data-row") == 3
        assert tiles_of(shown)["queue depth"][1] == "3"
        assert "No matching notifications" in (await client.get("/notifications?kind=list")).text


@pytest.mark.req("DEC-16")
async def test_tiles_of_overdue_rows_link_to_the_same_number_of_rows(front: Front) -> None:
    """On Health, a site's page and Notifications. Rows due later or just arrived are not overdue."""
    await front.centre.add_channel()
    await front.centre.add_list("ops", "ops@example.org")
    front.centre.adapter.answer("ops", TransientFailure("451 later", retry_after=timedelta(hours=1)))
    await front.centre.send("ops")
    await front.centre.deliver()
    await front.operate.sites.add(ADMIN, "north")
    await front.centre.send_many(3, "ops")
    await front.centre.send_many(2, "ops", site="north")
    front.clock.advance(30)
    await front.centre.send("ops")
    async with front.client() as client:
        await log_in(front, client)
        for path, count in (("/", 5), ("/notifications", 5), ("/sites/north", 2)):
            leads_to, told = tiles_of((await client.get(path)).text)["overdue"]
            assert told == str(count), path
            found = await client.get(html.unescape(leads_to))
            assert found.text.count("data-row") == count, leads_to
        assert 'name="overdue" type="checkbox" value="true" checked' in found.text


@pytest.mark.req("KPI-09")
async def test_queues_of_sites_are_shown_separately_from_those_of_central(quick: Front) -> None:
    await report(quick, backlog={"notification": 340, "external_call": 2}, rejected=1)
    text = (await seen(quick)).text
    assert tiles_of(text)["queue depth"][1] == "0", "central's own figure knows nothing of the site's report"
    stop = text.split("At the sites", 1)[1].split("At central", 1)[0]
    assert "<b>340</b> waiting there" in stop
    assert "as the sites report" in stop
    assert "tile" not in stop


async def test_page_without_issues_shows_no_warning_tiles(quick: Front) -> None:
    await quick.deliver()
    await report(quick)
    quick.centre.metrics.swept(0.01)
    text = (await seen(quick)).text
    assert "All is well: " not in text, "no node leads in this test"
    troubles = re.findall(r'class="headline (\w+)"', text)
    assert troubles == ["wait"]
    assert 'class="tile wait some"' not in text
    assert 'class="tile bad some"' not in text


async def test_worst_issue_is_first_and_links_to_its_page(quick: Front) -> None:
    await report(quick, backlog={"notification": 57})
    await quick.park()
    quick.centre.adapter.always["ops"] = Held("connection refused", phase="connect")
    for _ in range(5):
        await quick.centre.send("ops")
        await quick.centre.deliver()
        quick.clock.advance(20)
    quick.centre.metrics.swept(0.01)
    text = (await seen(quick)).text
    headline = text.split('class="headline bad"', 1)[1].split("</p>", 1)[0]
    assert f'href="/sites/{SITE}"' in headline
    assert "Channel mail is blocked: connection refused" in text
    order = [text.index(word) for word in (f"{SITE} is offline", "is blocked", "is parked until")]
    assert order == sorted(order)
    assert "1</b> of 1 channel blocked" in text


async def test_running_bulk_action_shows_its_progress(quick: Front) -> None:
    parked = [await quick.park(), await quick.park()]
    act = await quick.operate.bulk_actions.start(OPERATOR, BulkVerb.RETRY, [Chosen(one) for one in parked], "mended")
    text = (await seen(quick)).text
    assert f'href="/bulk-actions/{act.action_id}"' in text
    assert "0 of 2" in text


@pytest.mark.req("DEC-17")
async def test_trends_are_drawn_from_the_samples_for_the_hour_the_day_and_the_week(
    front: Front, clock: ManualClock
) -> None:
    store, end = front.centre.store, clock.now()
    await front.park()
    for minutes in (200, 30, 29, 28):
        now = end - minutes * MINUTE
        snapshot = await store.read(kpis.snapshot, Thresholds(), now=clock.now())
        await store.write(samples.add, now.replace(second=0, microsecond=0), snapshot)
    found = await front.watch.kpis.trends(SPANS["hour"].length, SPANS["hour"].step)
    assert [value for _, value in found["parked"].points] == [1, 1, 1]
    await front.park()
    async with front.client() as client:
        await log_in(front, client)
        for span, runs in (("hour", 2), ("day", 3), ("week", 2)):
            text = (await client.get("/", params={"span": span})).text
            assert f"Parked, last {span}" in text
            assert f'href="/?span={span}" aria-current="true"' in text
            (line,) = re.findall(r'class="line bad" d="([^"]*)"', text)
            assert line.count("M") == runs, "a gap where there is no sample; the last point is the present"
            assert '<span class="line-key bad"><span data-read>2</span></span>' in text, "as the tile says"
            chart = text.partition('id="chart-parked"')[2]
            said = re.findall(r'<rect class="slice" [^>]+><title>[^<]+ UTC: ([^<]+)</title>', chart)
            assert said[0] == "parked 2", "each stretch says by itself what was, the newest first"
            assert "parked 1" in said
            assert "no data" in said
        other = await client.get("/", params={"span": "century"})
    assert (other.status_code, "Parked, last day" in other.text) == (200, True)


@pytest.mark.parametrize(("minutes", "span"), [((9, 8), "hour"), ((200, 8), "day"), ((3000, 2900), "week")])
async def test_the_page_opens_on_the_span_that_has_data(quick: Front, minutes: tuple[int, ...], span: str) -> None:
    store, end = quick.centre.store, quick.clock.now()
    for ago in minutes:
        snapshot = await store.read(kpis.snapshot, Thresholds(), now=quick.clock.now())
        await store.write(samples.add, (end - ago * MINUTE).replace(second=0, microsecond=0), snapshot)
    assert f'href="/?span={span}" aria-current="true"' in (await seen(quick)).text


async def test_chart_without_samples_says_so(quick: Front) -> None:
    assert "No data for this period yet" in (await seen(quick)).text


async def report(front: Front, **more: Any) -> None:
    given = {"sent_at": to_text(front.clock.now()), "version": "1.0", "backlog": {}} | more
    await front.centre.ingest.health.keep(SITE, Health(**given))


async def seen(front: Front, name: str = "viewer") -> httpx2.Response:
    async with front.client() as client:
        await log_in(front, client, name)
        page = await client.get("/")
        assert page.status_code == 200, page.text
        return page


async def log_in(front: Front, client: httpx2.AsyncClient, name: str = "viewer") -> None:
    token = re.search(r'name="csrf" value="([0-9a-f]{64})"', (await client.get("/login")).text)
    assert token
    form = {"csrf": token[1], "name": name, "password": front.password(name)}
    assert (await client.post("/login", data=form)).status_code == 303


def tiles_of(text: str) -> dict[str, tuple[str, str]]:
    """Each tile by its label: where it leads, and its figure."""
    found = re.findall(
        r'<li class="tile[^"]*">\s*<a href="([^"]*)"[^>]*>\s*<span class="label">([^<]*)</span> <b>([^<]*)</b>', text
    )
    return {label: (path, value) for path, label, value in found}
