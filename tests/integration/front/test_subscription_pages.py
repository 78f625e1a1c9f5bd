"""The pages of subscriptions: the list, the form, actions, the secret that is shown once, and failing receivers."""

import re
from collections.abc import AsyncIterator
from functools import partial

import pytest

from fieldpost.central.store.notifications import breakers
from fieldpost.central.watch.cursor import LIMIT_DEFAULT
from fieldpost.core.delivery.breaker import BreakerPolicy, record
from fieldpost.core.delivery.outcome import Evidence, TransientFailure
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import SubscriptionState, subscription_key
from fieldpost.core.events.topic import Topic
from fieldpost.core.secret import Secret
from fieldpost.testing import ManualClock
from support.centre import ScriptedAdapter
from support.front import ADMIN, Front, open_front
from support.visitor import visiting

URL = "https://93.184.216.34/in"
EVENT_ID = "019b7892-1c00-7eff-b051-ea43d9c802e0"
FIELDS = {
    "name": "shop",
    "owner": "web team",
    "filter": "topic=orders, action=created, country=NL",
    "settings.url": URL,
}


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, clock) as opened:
        yield opened


async def add(front: Front, name: str = "shop") -> str:
    made = await front.operate.subscriptions.add(ADMIN, name, "web", [FilterEntry(topic="orders")], {"url": URL})
    return made.subscription.subscription_id


async def fail(front: Front, subscription_id: str, times: int) -> None:
    for _ in range(times):
        rule = partial(record, evidence=Evidence.FAILS, error="HTTP 503", policy=BreakerPolicy(), now=front.clock.now())
        await front.centre.store.write(breakers.change, subscription_key(subscription_id), rule)


async def test_subscription_is_added_changed_and_removed_without_scripts(quick: Front) -> None:
    async with visiting(quick, "admin") as visitor:
        assert "No subscriptions yet" in await visitor.look("/subscriptions")
        await visitor.look("/new/subscription")
        await visitor.send(
            "/subscriptions", **FIELDS, **{"settings.headers": "X-Team: web\r\n", "retry": "fixed:60s:3"}
        )
        assert "The signing secret is shown only once" in visitor.text
        secret = re.search(r"whsec_[A-Za-z0-9+/=]+", visitor.page.text)
        assert secret
        (made,) = await quick.operate.subscriptions.find()
        assert made.filter == (FilterEntry(topic="orders", action="created", attributes={"country": "NL"}),)
        assert made.settings["headers"] == {"X-Team": "web"}
        path = f"/subscriptions/{made.subscription_id}"
        await visitor.look(path)
        assert secret[0] not in visitor.page.text
        changed = FIELDS | {"name": "webshop", "settings.url": f"{URL}/2", "filter": "topic=*"}
        await visitor.send(f"{path}/change", **changed)
        assert "Subscription saved" in visitor.text
        (made,) = await quick.operate.subscriptions.find()
        assert (made.name, made.url, made.settings.get("headers")) == ("webshop", f"{URL}/2", {})
        await visitor.send(f"{path}/rotate")
        assert "Secret rotated" in visitor.text
        for verb, state in (("pause", SubscriptionState.PAUSED), ("resume", SubscriptionState.ACTIVE)):
            await visitor.look(path if verb == "resume" else f"{path}?confirm={verb}")
            await visitor.send(f"{path}/{verb}")
            assert (await quick.operate.subscriptions.get(made.subscription_id)).state is state
        await visitor.look(f"{path}?confirm=remove")
        await visitor.send(f"{path}/remove")
        assert "Subscription removed" in visitor.text
        assert await quick.operate.subscriptions.find() == []


async def test_wrong_input_is_explained_at_its_field_and_kept(quick: Front) -> None:
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/new/subscription")
        for fields, text in (
            ({"filter": "orders"}, "Line 1 must be name=value"),
            ({"settings.url": "http://93.184.216.34/"}, "https"),
            ({"settings.headers": "no colon"}, "Line 1 must be Name: value"),
            ({"settings.rate": "often"}, "rate"),
            ({"name": ""}, "name"),
        ):
            answer = await visitor.send("/subscriptions", **FIELDS | fields)
            assert (answer.status_code, text.lower() in visitor.text.lower()) == (422, True), visitor.text
            assert "web team" in visitor.page.text
        await add(quick)
        answer = await visitor.send("/subscriptions", **FIELDS | {"owner": "web"})
        assert (answer.status_code, "already has a subscription" in visitor.text) == (409, True)


async def test_failing_receivers_are_listed_and_cleared_one_by_one_or_all(quick: Front) -> None:
    first, second, healthy = [await add(quick, name) for name in ("first", "second", "third")]
    await fail(quick, first, 9)
    await fail(quick, second, 2)
    async with visiting(quick, "operator") as visitor:
        text = await visitor.look("/unhealthy-receivers")
        assert "Blocked 1 Monitored 1" in text
        assert "third" not in text
        assert text.index("first") < text.index("second")
        assert "The receiver fails, so nothing is sent: HTTP 503" in await visitor.look(f"/subscriptions/{first}")
        await visitor.look("/unhealthy-receivers")
        token = {"subscription_id": first}
        await visitor.send("/unhealthy-receivers/reset", **token)
        text = visitor.text
        assert "Breaker closed" in text
        assert "Blocked 0 Monitored 1" in text
        await visitor.send("/unhealthy-receivers/reset", subscription_id="")
        assert "All receivers are healthy" in visitor.text
    found, _ = await quick.watch.subscriptions.one(healthy)
    assert found.health == "untried"


async def test_failing_receiver_is_first_on_the_first_page_with_any_name(quick: Front) -> None:
    for number in range(LIMIT_DEFAULT):
        await add(quick, f"mirror-{number:03}")
    await fail(quick, await add(quick, "zeeland"), 9)
    async with visiting(quick, "viewer") as visitor:
        text = await visitor.look("/subscriptions")
        assert text.index("zeeland") < text.index("mirror-000")
        assert "mirror-049" in text
        assert 'rel="next"' in visitor.page.text


async def test_a_viewer_sees_subscriptions_and_no_secret_and_cannot_change_them(quick: Front) -> None:
    one = await add(quick)
    async with visiting(quick, "viewer") as visitor:
        assert "shop" in await visitor.look("/subscriptions")
        text = await visitor.look(f"/subscriptions/{one}")
        assert "topic=orders" in text
        assert "You need the role admin to change the subscription" in text
        assert 'action="/subscriptions' not in visitor.page.text
        answer = await visitor.client.get("/new/subscription")
        assert answer.status_code == 403


async def test_a_test_event_reports_its_phases_and_is_signed(quick: Front) -> None:
    receiver = ScriptedAdapter("webhook")
    quick.operate.subscriptions._adapters = {"webhook": receiver}
    one = await add(quick)
    path = f"/subscriptions/{one}"
    receiver.answer("shop", TransientFailure("HTTP 503", phase="answer"))
    async with visiting(quick, "admin") as visitor:
        await visitor.look(path)
        await visitor.send(f"{path}/test")
        assert "transient failure HTTP 503" in visitor.text
        assert "Check the receiver's log; it must answer 2xx within 30 seconds." in visitor.text
        await visitor.look(path)
        await visitor.send(f"{path}/test")
        assert "The receiver accepted the test event." in visitor.text
    envelope = receiver.envelopes[-1]
    assert envelope.event is not None
    assert envelope.event.event.topic == "fieldpost.test"
    assert isinstance(envelope.settings["secret"], Secret)
    assert ("subscription.test",) in await quick.centre.rows("select request_summary from audit")
    async with quick.client("admin") as client:
        answer = await client.post(f"/api/v1{path}/test")
        assert (answer.status_code, answer.json()["outcome"]) == (200, "delivered")
        assert (await client.get(f"/api/v1{path}")).json()["health"] == "healthy", "it was tried"


async def test_an_unverified_subscription_becomes_active_by_a_test_that_is_answered(quick: Front) -> None:
    receiver = ScriptedAdapter("webhook")
    quick.operate.subscriptions._adapters = {"webhook": receiver}
    one = await add(quick)
    await quick.centre.execute(f"update subscriptions set state = 'unverified' where subscription_id = '{one}'")
    receiver.answer("shop", TransientFailure("HTTP 500", phase="answer"))
    states = []
    for _ in range(2):
        await quick.operate.subscriptions.test(ADMIN, one)
        states.append((await quick.operate.subscriptions.get(one)).state)
    assert states == [SubscriptionState.UNVERIFIED, SubscriptionState.ACTIVE]


async def test_disabled_subscription_is_enabled_and_recovered_without_scripts(quick: Front) -> None:
    one = await add(quick)
    path = f"/subscriptions/{one}"
    await quick.operate.topics.save(ADMIN, Topic(name="orders"), None)
    await quick.operate.subscriptions.disable(ADMIN, one, 1)
    event = Event(event_id=EVENT_ID, topic="orders", source="app:shop", payload="{}")
    await quick.centre.ingest.publisher.publish("app:shop", [event])
    quick.clock.advance(60)
    async with visiting(quick, "admin") as visitor:
        await visitor.look(path)
        assert "Enable for new events" in visitor.text
        await visitor.look(f"{path}/recover", since="not a time")
        assert visitor.page.status_code == 422
        text = await visitor.look(f"{path}/recover", since="2000-01-01T00:00")
        assert "0 parked notifications are retried and 1 missing one is created" in text
        await visitor.send(f"{path}/recover")
        assert "/bulk-actions/" in str(visitor.page.url)
    assert (await quick.operate.subscriptions.get(one)).state is SubscriptionState.ACTIVE
    for _ in range(3):
        await quick.operate.bulk_actions.sweep()
        quick.clock.advance(2)
    assert await quick.centre.rows("select list_name, status from notifications") == [("shop", "pending")]


async def test_enable_recover_and_resend_over_the_api(quick: Front) -> None:
    one = await add(quick)
    await quick.operate.topics.save(ADMIN, Topic(name="orders"), None)
    event = Event(event_id=EVENT_ID, topic="orders", source="app:shop", payload="{}")
    await quick.centre.ingest.publisher.publish("app:shop", [event])
    quick.centre.adapters["webhook"] = ScriptedAdapter("webhook")
    await quick.centre.deliver()
    ((id_, status, version),) = await quick.centre.rows("select notification_id, status, version from notifications")
    assert status == "delivered"
    path = f"/api/v1/subscriptions/{one}"
    async with quick.client("admin") as client:
        answer = await client.post(f"/api/v1/notifications/{id_}/resend", json={"version": version})
        assert (answer.status_code, answer.json()["status"]) == (200, "pending")
        preview = (await client.get(f"{path}/recover", params={"since": "2000-01-01T00:00:00Z"})).json()
        assert (preview["parked"], preview["missing"], preview["is_whole"]) == (0, 0, True)
        started = await client.post(f"{path}/recover", json={"since": "2000-01-01T00:00:00Z"})
        assert (started.status_code, started.json()["verb"]) == (202, "retry")
        assert (await client.post(f"{path}/enable", json={"version": 1})).status_code == 409
        disabled = (await client.post(f"{path}/disable", json={"version": 1})).json()
        answer = await client.post(f"{path}/enable", json={"version": disabled["version"]})
        assert (answer.status_code, answer.json()["state"]) == (200, "active")
    async with quick.client("viewer") as client:
        assert (await client.post(f"{path}/recover", json={"since": "2000-01-01T00:00:00Z"})).status_code == 403
        assert (await client.post(f"/api/v1/notifications/{id_}/resend", json={"version": 9})).status_code == 403
