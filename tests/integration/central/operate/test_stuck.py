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

BY = Thresholds()


async def stuck(centre: Centre, notification_id: str) -> tuple[float, int, bool]:
    """By the KPI, by the search and by its own page."""
    reader = NotificationReader(centre.store, centre.clock, BY)
    figures = await centre.store.read(kpis.snapshot, BY, now=centre.store.now())
    found = await reader.page(Filter(is_stuck=True))
    detail = await reader.detail(notification_id)
    return figures.of_sites[SITE]["stuck"], len(found.lines), detail.is_stuck


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
