"""One row per notification, of any type, from which both operators' queries and KPIs are answered."""

import pytest

from fieldpost.central.store.figures import kpis
from fieldpost.central.store.search import notifications
from fieldpost.core.delivery.outcome import PermanentFailure, TransientFailure
from fieldpost.core.kpi import Thresholds
from fieldpost.core.search.notification_filter import Filter
from fieldpost.testing import ManualClock
from support.centre import Centre


@pytest.mark.req("TBL-01")
async def test_a_notification_is_one_row_for_life_and_all_figures_come_from_these_rows(
    mailing: Centre, clock: ManualClock
) -> None:
    item, of_no_type = mailing.item(), mailing.item(list_name="no-such-list")
    mailing.adapter.answer("ops", TransientFailure("451 busy"), PermanentFailure("550 unknown"))
    for step in range(5):
        # Sent again at every step, as a site does that lost its ack.
        await mailing.submit(item, of_no_type)
        await mailing.deliver()
        clock.advance(61)
        if step == 3:
            assert await mailing.retry(item.notification_id)
        found = await mailing.rows("select cast(notification_id as text) from notifications")
        assert sorted(str(row[0]) for row in found) == sorted([item.notification_id, of_no_type.notification_id])
    live = [await mailing.send() for _ in range(3)]

    before = await answers(mailing)
    assert [status for _, status in before[0]].count("pending") == len(live)
    assert {(item.notification_id, "delivered"), (of_no_type.notification_id, "parked")} <= set(before[0])
    await mailing.execute("delete from attempts", "delete from targets")
    assert await answers(mailing) == before, "no other table has a say in it"


async def answers(centre: Centre) -> tuple[list[tuple[str, str]], object]:
    """Every notification with its status as an operator finds it, and the KPIs."""
    found = await centre.store.read(notifications.find, Filter(), limit=100, before=None)
    snapshot = await centre.store.read(kpis.snapshot, Thresholds(), now=centre.store.now())
    return [(n.notification_id, n.status.value) for n in found.notifications], snapshot
