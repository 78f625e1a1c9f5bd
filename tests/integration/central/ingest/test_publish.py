"""Publishing events: recording, fan-out, verdicts, and subscriptions that change meanwhile."""

import asyncio
import os
from dataclasses import replace

import pytest

from fieldpost.central.ingest.publish import Publisher, PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.events import events, subscriptions, topics
from fieldpost.central.store.search import notifications, terms
from fieldpost.core.events.event import Event, notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription, SubscriptionState, subscription_key
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from fieldpost.core.notification import Status
from fieldpost.core.search.notification_filter import Filter
from fieldpost.link.messages import Submit
from fieldpost.testing import ManualClock
from support.centre import Centre, ScriptedAdapter

SOURCE = "app:shop"
PAYLOAD = '{ "order" : 17,  "euro": "€" }'


@pytest.fixture
async def publisher(centre: Centre) -> Publisher:
    await centre.store.write(topics.add, Topic(name="orders.created"), centre.clock.now())
    return make_publisher(centre)


def make_publisher(centre: Centre, *, open_topics: bool = False) -> Publisher:
    return Ingest(centre.store, centre.clock, events=PublishOptions(open_topics=open_topics)).publisher


def make_id(centre: Centre) -> str:
    return new_id(centre.clock.now(), os.urandom(10))


def make_event(centre: Centre, **more: object) -> Event:
    fields = {"event_id": make_id(centre), "topic": "orders.created", "source": SOURCE, "payload": PAYLOAD}
    return Event(**{**fields, **more})  # type: ignore[arg-type]


async def subscribe(centre: Centre, name: str = "billing", *entries: FilterEntry) -> Subscription:
    subscription = Subscription(
        subscription_id=make_id(centre), name=name, owner="team", filter=entries or (FilterEntry(),)
    )
    await centre.store.write(subscriptions.add, subscription, centre.clock.now())
    return subscription


async def notifications_of(centre: Centre, event: Event) -> list[str]:
    found = await centre.store.read(events.notifications_of, event.event_id, 10_000)
    return [one.notification_id for one in found]


async def test_event_is_stored_byte_for_byte_even_without_subscribers(centre: Centre, publisher: Publisher) -> None:
    event = make_event(centre, action="create", resource="order/17", attributes={"region": "North"})
    [verdict] = await publisher.publish(SOURCE, [event])
    assert verdict.verdict == "accepted"
    recorded = await centre.store.read(events.get, event.event_id)
    assert recorded is not None
    assert (recorded.event, recorded.match_count) == (event, 0)
    assert await notifications_of(centre, event) == []


@pytest.mark.req("DEC-43", "DEC-44")
async def test_each_matching_subscription_gets_one_notification_that_refers_to_the_event(
    centre: Centre, publisher: Publisher
) -> None:
    north = await subscribe(centre, "north", FilterEntry(attributes={"region": "north"}))
    everything = await subscribe(centre, "everything")
    await subscribe(centre, "south", FilterEntry(attributes={"region": "south"}))
    event = make_event(centre, attributes={"region": "North"})
    await publisher.publish(SOURCE, [event])
    expected = {notification_id_of(event.event_id, one.subscription_id): one for one in (north, everything)}
    assert set(await notifications_of(centre, event)) == set(expected)
    for notification_id, subscription in expected.items():
        n = await centre.get(notification_id)
        assert (n.type, n.status, n.list_name) == ("webhook", Status.PENDING, subscription.name)
        assert (n.delivery_key, n.body) == (subscription_key(subscription.subscription_id), "")
        assert n.provenance.site == SOURCE
    recorded = await centre.store.read(events.get, event.event_id)
    assert recorded is not None
    assert recorded.match_count == 2


@pytest.mark.req("DEC-43")
async def test_the_same_event_again_is_a_duplicate_and_adds_nothing(centre: Centre, publisher: Publisher) -> None:
    await subscribe(centre)
    event = make_event(centre)
    verdicts = await publisher.publish(SOURCE, [event, replace(event)])
    assert [v.verdict for v in verdicts] == ["accepted", "duplicate"]
    await subscribe(centre, "later")
    [verdict] = await publisher.publish(SOURCE, [event])
    assert verdict.verdict == "duplicate"
    assert len(await notifications_of(centre, event)) == 1, "a later subscription gets it only by recover"


@pytest.mark.req("DEC-43")
@pytest.mark.parametrize(
    "change", [{"payload": "{}"}, {"source": "app:other"}, {"resource": "x"}, {"attributes": {"a": "b"}}], ids=str
)
async def test_the_same_id_with_other_content_or_from_another_source_is_a_conflict(
    centre: Centre, publisher: Publisher, change: dict[str, object]
) -> None:
    event = make_event(centre)
    await publisher.publish(SOURCE, [event])
    other = replace(event, **change)  # type: ignore[arg-type]
    [verdict] = await publisher.publish(other.source, [other])
    assert (verdict.verdict, verdict.code) == ("rejected", "event.conflict")
    recorded = await centre.store.read(events.get, event.event_id)
    assert recorded is not None
    assert recorded.event == event


async def test_an_unknown_or_archived_topic_is_rejected_by_name_and_its_neighbours_are_not(
    centre: Centre, publisher: Publisher, clock: ManualClock
) -> None:
    await centre.store.write(topics.add, Topic(name="old", archived_at=clock.now()), clock.now())
    good, unknown, archived = (make_event(centre, topic=name) for name in ("orders.created", "nobody.knows", "old"))
    verdicts = await publisher.publish(SOURCE, [unknown, good, archived])
    assert [(v.verdict, v.code) for v in verdicts] == [
        ("rejected", "topic.unknown"),
        ("accepted", None),
        ("rejected", "topic.archived"),
    ]
    assert "'nobody.knows'" in str(verdicts[0].error)
    [verdict] = await make_publisher(centre, open_topics=True).publish(SOURCE, [unknown])
    assert verdict.verdict == "accepted"


async def test_a_change_of_subscriptions_takes_effect_at_the_next_event(centre: Centre, publisher: Publisher) -> None:
    first = await subscribe(centre, "first")
    await publisher.publish(SOURCE, [make_event(centre)])
    disabled = replace(first, state=SubscriptionState.DISABLED)
    assert await centre.store.write(subscriptions.change, disabled, centre.clock.now())
    second = await subscribe(centre, "second")
    event = make_event(centre)
    await publisher.publish(SOURCE, [event])
    assert await notifications_of(centre, event) == [notification_id_of(event.event_id, second.subscription_id)]


@pytest.mark.req("DEC-43")
async def test_fan_out_stores_the_payload_once_and_does_not_index_it(centre: Centre, publisher: Publisher) -> None:
    for number in range(20):
        await subscribe(centre, f"s{number}")
    event = make_event(centre)
    await publisher.publish(SOURCE, [event])
    plain = await centre.send(subject="orders and more")
    for _ in ("before indexing", "after indexing"):
        found = await centre.store.read(notifications.find, Filter(subject="orders"), limit=50)
        assert [n.notification_id for n in found.notifications] == [plain], "events are found by topic"
        found = await centre.store.read(notifications.find, Filter(type="webhook"), limit=50)
        assert len(found.notifications) == 20
        await centre.store.write(terms.index, 1000, 1)
        await centre.store.write(terms.index, 1000, 2)
    assert await centre.rows("select term from search_terms where term = 'w:created'") == []
    assert await centre.rows("select count(*) from notifications where event_id is not null and body = ''") == [(20,)]
    assert await centre.rows("select payload from events") == [(PAYLOAD,)]
    assert await centre.rows("select count(*) from audit where kind = 'notify_send'") == [(21,)]


@pytest.mark.req("DEC-44")
async def test_subscription_named_like_a_list_never_gets_its_targets(mailing: Centre) -> None:
    adapter = mailing.adapters["webhook"] = ScriptedAdapter("webhook")
    await mailing.store.write(topics.add, Topic(name="orders.created"), mailing.clock.now())
    subscription = await subscribe(mailing, "ops")
    event = make_event(mailing)
    await mailing.ingest.publisher.publish(SOURCE, [event])
    to_list = await mailing.send("ops")
    await mailing.deliver()
    [envelope] = adapter.envelopes
    assert list(envelope.targets) == [subscription_key(subscription.subscription_id)]
    assert mailing.adapter.sent() == [to_list]
    [notification_id] = await notifications_of(mailing, event)
    shown = await mailing.get(notification_id)
    assert (shown.status, [target.address for target in shown.targets]) == (
        Status.DELIVERED,
        [subscription_key(subscription.subscription_id)],
    )


async def test_publishers_and_sites_take_turns_at_the_store(centre: Centre, publisher: Publisher) -> None:
    """A publisher with a backlog does not delay a site by more than what is at the store already."""
    for number in range(20):
        await subscribe(centre, f"s{number}")
    ingest = Ingest(centre.store, centre.clock)
    done: list[str] = []

    async def publish() -> None:
        await ingest.publisher.publish(SOURCE, [make_event(centre) for _ in range(50)])
        done.append("app")

    async def submit() -> None:
        await ingest.submit("plant", Submit(1, (centre.item(),)))
        done.append("site")

    publishing = [asyncio.create_task(publish()) for _ in range(12)]
    await asyncio.sleep(0)
    await asyncio.gather(submit(), *publishing)
    assert done.index("site") < 5, "it waits for at most the transactions at the store, not for the backlog"


async def test_a_request_with_many_matches_takes_several_transactions(centre: Centre, publisher: Publisher) -> None:
    for number in range(300):
        await subscribe(centre, f"s{number}")
    published = [make_event(centre) for _ in range(10)]
    verdicts = await publisher.publish(SOURCE, [*published, published[0]])
    assert [v.verdict for v in verdicts] == ["accepted"] * 10 + ["duplicate"]
    assert await centre.rows("select count(*) from notifications") == [(3000,)]
    [(largest,)] = await centre.rows("select max(count) from search_backlog")
    assert largest == 1800, "six events with their 300 notifications each fit in one transaction"
