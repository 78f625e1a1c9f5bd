"""Notifications by kind, subscription and event: on the page and over the API."""

import pytest

from fieldpost.core.delivery.outcome import Delivered, PermanentFailure
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.front import ADMIN, Front
from support.hooks import FAILED, Hooks
from support.visitor import visiting


@pytest.mark.req("KPI-11")
async def test_the_page_and_the_api_filter_by_kind_subscription_and_event(front: Front, clock: ManualClock) -> None:
    hooks = Hooks(front.centre, clock)
    billing, stock = [(await hooks.subscribe(name)).subscription_id for name in ("billing", "stock")]
    first, second = await hooks.publish(2)
    mail = await front.centre.send()
    webhooks = {(event, one): notification_id_of(event, one) for event in (first, second) for one in (billing, stock)}
    cases = {
        "kind=webhook": set(webhooks.values()),
        "kind=list": {mail},
        f"subscription={billing}": {i for (_, one), i in webhooks.items() if one == billing},
        f"event={first}": {i for (event, _), i in webhooks.items() if event == first},
        f"event={second}&subscription={stock}": {webhooks[second, stock]},
        f"event={mail}": set(),
    }
    async with front.client("viewer") as client:
        for query, expected in cases.items():
            lines = (await client.get(f"/api/v1/notifications?{query}")).json()["notifications"]
            assert {line["notification_id"] for line in lines} == expected, query
        refused = await client.get("/api/v1/notifications?subscription=billing")
        assert (refused.status_code, refused.json()["field"]) == (422, "subscription")
    async with visiting(front, "viewer") as visitor:
        for query, expected in cases.items():
            await visitor.look(f"/notifications?{query}")
            shown = {i for i in (mail, *webhooks.values()) if f'id="r-{i}"' in visitor.page.text}
            assert shown == expected, query
        text = await visitor.look(f"/notifications?subscription={billing}")
        assert "Notifications to the subscription billing of shop" in text
        assert "No notification to this subscription" in await visitor.look(f"/notifications?subscription={mail}")
        text = await visitor.look(f"/notifications/{webhooks[first, stock]}")
        for link in (f"/notifications?subscription={stock}", f"/notifications?event={first}"):
            assert link in visitor.page.text


@pytest.mark.req("WHK-09", "WHK-10")
async def test_the_page_lists_retrying_delivered_parked_and_discarded_webhooks(
    front: Front, clock: ManualClock
) -> None:
    hooks = Hooks(front.centre, clock)
    subscription = await hooks.subscribe()
    given_up = PermanentFailure("the receiver answered 422, a code to give up on")
    made: dict[str, str] = {}
    for status, outcome in (
        (Status.RETRYING, FAILED),
        (Status.DELIVERED, Delivered()),
        (Status.PARKED, given_up),
        (Status.DISCARDED, given_up),
    ):
        hooks.adapter.answer("billing", outcome)
        made[status.value] = await hooks.one(subscription)
        await hooks.centre.deliver()
    discarded = await hooks.get(made["discarded"])
    await front.operate.notifications.discard(ADMIN, discarded.notification_id, discarded.version)
    async with visiting(front, "operator") as visitor:
        for status, notification_id in made.items():
            await visitor.look(f"/notifications?kind=webhook&status={status}")
            shown = {i for i in made.values() if f'id="r-{i}"' in visitor.page.text}
            assert shown == {notification_id}, status
        parked = await hooks.get(made["parked"])
        await visitor.look(f"/notifications/{parked.notification_id}")
        await visitor.send(f"/notifications/{parked.notification_id}/retry")
    assert (await hooks.get(made["parked"])).status is Status.PENDING, "restarted by hand"
