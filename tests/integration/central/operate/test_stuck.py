"""Stuck notifications, and the retry by an operator after which one is not stuck any more."""

from datetime import timedelta

import pytest

from fieldpost.central.store.figures import kpis
from fieldpost.central.watch.notifications import NotificationReader
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import Status
from fieldpost.core.search.notification_filter import Filter
from fieldpost.testing import ManualClock
from support.centre import SITE, Centre
from support.front import ADMIN
from support.hooks import FAILED, SOURCE, Hooks

BY = Thresholds()


async def stuck(centre: Centre, notification_id: str, kpi: str = "stuck", site: str = SITE) -> tuple[float, int, bool]:
    """By the KPI, by the search and by its own page."""
    reader = NotificationReader(centre.store, centre.clock, BY)
    figures = await centre.store.read(kpis.snapshot, BY, now=centre.store.now())
    found = await reader.page(Filter(is_stuck=True))
    detail = await reader.detail(notification_id)
    assert [line.is_stuck for line in found.lines] == [True] * len(found.lines)
    return figures.of_sites[site][kpi], len(found.lines), detail.is_stuck


@pytest.mark.req("DEC-69", "KPI-03")
async def test_a_notification_retried_by_an_operator_counts_as_stuck_from_the_start_of_its_cycle(
    mailing: Centre, clock: ManualClock
) -> None:
    mailing.adapter.answer("ops", PermanentFailure("550 no such user"))
    sent = await mailing.send()
    await mailing.deliver()
    clock.advance(86_400)
    assert await mailing.retry(sent)
    clock.advance(1)
    assert (await mailing.get(sent)).status is Status.PENDING
    assert await stuck(mailing, sent) == (0, 0, False), "an operator retried it a second ago"
    clock.advance((BY.stuck_after - timedelta(seconds=1)).total_seconds())
    assert await stuck(mailing, sent) == (0, 0, False)
    clock.advance(1)
    assert await stuck(mailing, sent) == (1, 1, True)


@pytest.mark.dec("DEC-52")
async def test_a_webhook_that_waits_for_its_retry_time_or_is_held_is_not_stuck(
    centre: Centre, clock: ManualClock
) -> None:
    hooks = Hooks(centre, clock)
    subscription = await hooks.subscribe()
    sent = await hooks.one(subscription)
    hooks.adapter.always["billing"] = FAILED
    await centre.deliver()

    async def is_stuck() -> tuple[float, int, bool]:
        return await stuck(centre, sent, "webhooks_stuck", SOURCE)

    clock.advance(11 * 60)
    assert (await hooks.get(sent)).status is Status.RETRYING
    assert await is_stuck() == (0, 0, False), "it waits for its retry after 15 minutes"
    clock.advance(5 * 60)
    assert await is_stuck() == (1, 1, True), "the retry is due and nobody makes it"
    await hooks.actions.pause(ADMIN, subscription.subscription_id, 1)
    await centre.deliver()
    assert (await hooks.get(sent)).is_held
    clock.advance(86_400)
    assert await is_stuck() == (0, 0, False), "held by the pause"
