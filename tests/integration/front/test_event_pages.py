"""The pages of events and topics."""

from collections.abc import AsyncIterator

import pytest

from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.topic import Topic
from fieldpost.testing import ManualClock
from support.front import ADMIN, Front, open_front
from support.visitor import visiting

EVENT_ID = "019b7892-1c00-7eff-b051-ea43d9c802e0"


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, clock) as opened:
        yield opened


async def publish(front: Front, **more: str) -> None:
    await front.operate.topics.save(ADMIN, Topic(name="orders"), None)
    payload = more.pop("payload", '{"order":"SO-1","note":"<b>fragile</b>"}')
    event = Event(event_id=EVENT_ID, topic="orders", source="app:shop", payload=payload, resource="orders/1", **more)
    await front.centre.ingest.publisher.publish("app:shop", [event])


async def test_events_are_listed_filtered_and_shown_with_their_payload(quick: Front) -> None:
    async with visiting(quick, "operator") as visitor:
        assert "No events yet" in await visitor.look("/events")
        await publish(quick, action="created", correlation_id="c-1")
        text = await visitor.look("/events")
        assert "orders created orders/1 app:shop 0" in text
        assert "No matching events" in await visitor.look("/events", topic="others")
        assert "orders created" in await visitor.look("/events", topic="orders", correlation="c-1")
        assert "Invalid filter" in await visitor.look("/events", **{"from": "yesterday"})
        text = await visitor.look(f"/events/{EVENT_ID}")
        assert "No subscription or route matched this event" in text
        assert '"note": "<b>fragile</b>"' in text
        assert "<b>fragile</b>" not in visitor.page.text
        assert "does not exist" in await visitor.look("/events/019b7892-1c00-7eff-b051-ea43d9c80000")


async def test_a_viewer_reads_no_payload(quick: Front) -> None:
    await publish(quick)
    async with visiting(quick, "viewer") as visitor:
        text = await visitor.look(f"/events/{EVENT_ID}")
        assert "fragile" not in text
        assert "You need the role operator to read the payload" in text


async def test_topic_is_added_changed_archived_and_reopened_without_scripts(quick: Front) -> None:
    async with visiting(quick, "admin") as visitor:
        assert "No topics yet" in await visitor.look("/topics")
        await visitor.look("/new/topic")
        answer = await visitor.send("/topics", name="no spaces please", schema="", example="")
        assert (answer.status_code, "must be 1 to 128 characters" in visitor.text) == (422, True)
        schema = '{"type": "object", "required": ["order"]}'
        answer = await visitor.send("/topics", name="orders", schema=schema, example='{"total": 1}')
        assert answer.status_code == 422
        await visitor.send(
            "/topics", name="orders", attributes="country, priority,", owners="*", schema=schema, example='{"order": 1}'
        )
        assert "Topic added" in visitor.text
        added = await quick.watch.events.topic("orders")
        assert (added.attributes, added.owners) == (("country", "priority"), ("*",))
        await visitor.send("/topics/orders/change", description="Orders", schema=schema, example="")
        assert "Topic saved" in visitor.text
        await visitor.look("/topics/orders?confirm=archive")
        await visitor.send("/topics/orders/archive")
        assert "Topic archived" in visitor.text
        await visitor.send("/topics/orders/change", description="Orders", reopen="true")
        assert "Topic reopened" in visitor.text
        assert (await quick.watch.events.topic("orders")).archived_at is None


async def test_two_who_save_a_topic_at_once_do_not_overwrite_each_other(quick: Front) -> None:
    await quick.operate.topics.save(ADMIN, Topic(name="orders"), None)
    async with visiting(quick, "admin") as one, visiting(quick, "admin") as other:
        await one.look("/topics/orders")
        await other.look("/topics/orders")
        await one.send("/topics/orders/change", description="first")
        answer = await other.send("/topics/orders/change", description="second")
        assert (answer.status_code, "was changed by someone else" in other.text) == (409, True)
        assert "second" in other.page.text
    assert (await quick.watch.events.topic("orders")).description == "first"


async def test_a_viewer_sees_the_catalogue_and_cannot_change_it(quick: Front) -> None:
    await quick.operate.topics.save(ADMIN, Topic(name="orders", description="Orders of the shop"), None)
    async with visiting(quick, "viewer") as visitor:
        assert "orders Orders of the shop" in await visitor.look("/topics")
        text = await visitor.look("/topics/orders")
        assert "administrators only" in text
        assert "<form" not in visitor.page.text.split("<main", 1)[1].split("</main", 1)[0]


async def test_a_notification_of_an_event_links_to_its_event_and_subscription(quick: Front) -> None:
    made = await quick.operate.subscriptions.add(
        ADMIN, "mirror", "web", [FilterEntry(topic="orders")], {"url": "https://93.184.216.34/in"}
    )
    await publish(quick)
    ((found,),) = await quick.centre.rows("select notification_id from notifications")
    async with visiting(quick, "operator") as visitor:
        await visitor.look(f"/notifications/{found}")
        assert f'href="/events/{EVENT_ID}"' in visitor.page.text
        assert f'href="/subscriptions/{made.subscription.subscription_id}"' in visitor.page.text
        assert 'href="/lists/mirror"' not in visitor.page.text
        text = await visitor.look(f"/events/{EVENT_ID}")
        assert "1 subscription or route matched this event" in text
        assert "mirror" in text
    async with quick.client("viewer") as client:
        answer = await client.get(f"/api/v1/notifications/{found}")
        assert answer.json()["event_id"] == EVENT_ID
