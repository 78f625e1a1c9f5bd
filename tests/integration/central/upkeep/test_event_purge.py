"""The purge of events: after their retention, never before their last notification, with a tombstone."""

import os

import pytest

from fieldpost.central.ingest.publish import Publisher
from fieldpost.central.store.events import subscriptions, topics
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id
from fieldpost.testing import ManualClock
from support.centre import Centre

DAY_S = 86_400.0
DELIVER = (
    "update notifications set status = 'delivered', delivered_at = created_at, terminal_at = created_at, due_at = null"
)


@pytest.fixture
async def publisher(centre: Centre) -> Publisher:
    await centre.store.write(topics.add, Topic(name="t"), centre.clock.now())
    return centre.ingest.publisher


def make_event(centre: Centre, resource: str = "r") -> Event:
    event_id = new_id(centre.clock.now(), os.urandom(10))
    return Event(event_id=event_id, topic="t", source="app:shop", payload="{}", resource=resource)


async def sweep(centre: Centre, retention_days: float = 30.0, **options: float) -> None:
    made = UpkeepOptions(**options)  # type: ignore[arg-type]
    leader = Leader(centre.store, "node-1", centre.clock, made)
    assert await leader.campaign()
    assert await Purge(centre.store, centre.clock, leader, made, retention_days).sweep()


async def count(centre: Centre, table: str) -> int:
    [(found,)] = await centre.rows(f"select count(*) from {table}")
    return int(found)


@pytest.mark.req("DEC-18", "DEC-83")
async def test_purged_event_leaves_a_tombstone_and_is_still_a_duplicate(
    centre: Centre, publisher: Publisher, clock: ManualClock
) -> None:
    old = [make_event(centre, f"r{n}") for n in range(25)]
    await publisher.publish("app:shop", old)
    clock.advance(31 * DAY_S)
    young = make_event(centre)
    await publisher.publish("app:shop", [young])
    await sweep(centre, purge_batch=10)
    assert await count(centre, "events") == 1
    assert await count(centre, "event_tombstones") == 25
    verdicts = await publisher.publish("app:shop", old)
    assert {verdict.verdict for verdict in verdicts} == {"duplicate"}
    assert await count(centre, "events") == 1
    clock.advance(91 * DAY_S)
    await sweep(centre)
    assert await count(centre, "event_tombstones") == 1, "the tombstones of the old ones have expired"


@pytest.mark.req("DEC-83")
async def test_an_event_stays_as_long_as_any_of_its_notifications(
    centre: Centre, publisher: Publisher, clock: ManualClock
) -> None:
    made = Subscription(
        subscription_id=new_id(clock.now(), os.urandom(10)),
        name="billing",
        owner="team",
        filter=(FilterEntry(resource="wanted"),),
    )
    await centre.store.write(subscriptions.add, made, clock.now())
    # More events that must stay than a batch reads, before the one that may go.
    await publisher.publish("app:shop", [make_event(centre, "wanted") for _ in range(30)])
    clock.advance(1)
    await publisher.publish("app:shop", [make_event(centre, "unwanted")])
    clock.advance(31 * DAY_S)
    await sweep(centre, purge_batch=10)
    assert await count(centre, "events") == 30, "their notifications are pending"
    await centre.execute(DELIVER)
    await sweep(centre, terminal_retention_days=60)
    assert await count(centre, "events") == 30, "their notifications are kept for 60 days"
    clock.advance(31 * DAY_S)
    await sweep(centre, terminal_retention_days=60)
    assert (await count(centre, "events"), await count(centre, "notifications")) == (0, 0)
    assert await count(centre, "event_tombstones") == 31
