"""Rates of lists and channels: kept over all nodes, critical notifications first, with a forecast for each row."""

from datetime import datetime

import pytest

from fieldpost.central.watch.watch import Watch
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.delivery.rate import parse_rate
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre

NODES = ("node-a", "node-b")


async def run(centre: Centre, clock: ManualClock, seconds: float, step_s: float) -> list[tuple[datetime, str]]:
    """Let two nodes deliver for a time; when each notification was sent."""
    sent: list[tuple[datetime, str]] = []
    nodes = [centre.dispatcher(node) for node in NODES]
    async with nodes[0].running(), nodes[1].running():
        for _ in range(round(seconds / step_s)):
            before = centre.adapter.count
            await centre.drain(*nodes)
            sent += [(clock.now(), one.notification_id) for one in centre.adapter.envelopes[before:]]
            clock.advance(step_s)
    return sent


def most_in(sent: list[tuple[datetime, str]], seconds: float) -> int:
    times = [at for at, _ in sent]
    return max(sum(0 <= (other - at).total_seconds() < seconds for other in times) for at in times)


@pytest.mark.req("CHN-03")
async def test_two_nodes_keep_the_rates_of_a_channel_and_of_its_lists(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel(rate="60/1m")
    await centre.add_list("slow", rate=parse_rate("20/1m"))
    await centre.add_list("fast")
    ids = {name: await centre.send_many(30, name) for name in ("slow", "fast")}
    sent = await run(centre, clock, 110, 1)
    slow = [one for one in sent if one[1] in ids["slow"]]
    assert most_in(sent, 60) <= 60
    assert most_in(slow, 60) <= 20
    assert sorted(one for _, one in sent) == sorted(ids["slow"] + ids["fast"]), "each once"
    assert (slow[-1][0] - slow[0][0]).total_seconds() <= 105, "the rate is used"
    assert await centre.rows("select distinct status, retry_count from notifications") == [("delivered", 0)]


@pytest.mark.req("CHN-03")
async def test_critical_notifications_go_first_where_a_rate_makes_rows_wait(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel()
    await centre.add_list("ops", rate=parse_rate("1/1s"))
    plain = await centre.send_many(20)
    await run(centre, clock, 5, 1)
    critical = await centre.send_many(5, severity="critical")
    sent = [one for _, one in await run(centre, clock, 7, 1)]
    assert set(sent[:6]) >= set(critical), "at most one that had its turn already comes before them"
    assert set(sent) & set(plain)


@pytest.mark.req("CHN-03")
async def test_a_row_that_waits_has_a_forecast_and_is_never_stuck(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel(rate="60/10m")
    for name in ("ops", "other"):
        await centre.add_list(name)
    sent = [one for _ in range(35) for name in ("ops", "other") for one in await centre.send_many(1, name)]
    await run(centre, clock, 2, 1)
    latest = max(set(sent).difference(centre.adapter.sent()))  # all are due at the same time, so their ids decide
    watch = Watch.over(centre.store, clock)
    last = await watch.notifications.detail(latest)
    assert last.next_attempt_at is not None
    assert "Its turn comes at about" in last.why
    times = {one: at for at, one in await run(centre, clock, 620, 10)}
    assert not (await watch.notifications.detail(latest)).is_stuck, "it waits for more than ten minutes"
    times |= {one: at for at, one in await run(centre, clock, 200, 10)}
    error = abs((times[latest] - last.next_attempt_at).total_seconds())
    assert error <= 0.1 * (last.next_attempt_at - last.as_of).total_seconds()


@pytest.mark.req("CHN-03", "DEC-80")
async def test_time_in_the_queue_does_not_age_a_row(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel(max_retries=3)
    await centre.add_list("ops", rate=parse_rate("1/1d"))
    await centre.send_many(8)
    await run(centre, clock, 6 * 86400, 86400 / 2)
    assert await centre.rows("select 1 from notifications where status = 'parked'") == []
    assert len(await centre.rows("select 1 from notifications where held_by like 'rate:%'")) <= 2


@pytest.mark.req("CHN-03")
async def test_rows_behind_a_rate_still_probe_their_breaker(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel(rate="60/1m")
    await centre.add_list("ops")
    centre.adapter.always["ops"] = Held("refused")
    sent = await centre.send_many(30)
    await run(centre, clock, 20, 1)
    assert (await centre.breaker()).health == "blocked"
    centre.adapter.always.clear()
    await run(centre, clock, 150, 3)
    assert {(await centre.get(one)).status for one in sent} == {Status.DELIVERED}


@pytest.mark.req("CHN-03")
async def test_a_rate_that_was_removed_releases_its_queue(centre: Centre, clock: ManualClock) -> None:
    await centre.add_channel()
    await centre.add_list("ops", rate=parse_rate("1/1d"))
    await centre.send_many(10)
    await run(centre, clock, 2, 1)
    await centre.execute("update lists set rate = null", "update catalogues set version = version + 1")
    await run(centre, clock, 4, 2)
    assert await centre.rows("select distinct status from notifications") == [("delivered",)]
