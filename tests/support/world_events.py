"""Topics and events of the sample world: an order system and a port system publish them."""

import json
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import BreakerPolicy, record
from fieldpost.core.delivery.outcome import Evidence, TransientFailure
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import subscription_key
from fieldpost.core.events.topic import Topic
from support.centre import ScriptedAdapter
from support.front import ADMIN

if TYPE_CHECKING:
    from support.world import World

ORDER_SCHEMA = {
    "type": "object",
    "required": ["order", "total"],
    "properties": {"order": {"type": "string"}, "total": {"type": "number"}, "currency": {"enum": ["EUR", "USD"]}},
}
TOPICS = (
    Topic(
        name="orders",
        description="Orders of the web shop: created, changed and cancelled.",
        attributes=("country", "priority"),
        schema=json.dumps(ORDER_SCHEMA, indent=2),
        example=json.dumps({"order": "SO-1042", "total": 129.5, "currency": "EUR"}, indent=2),
        owners=("*",),
    ),
    Topic(
        name="port.berths", description="A ship occupies or leaves a berth.", attributes=("quay",), owners=("pilots",)
    ),
    Topic(name="orders.v0", description="Replaced by orders."),
)
EVENTS = (
    ("orders", "created", "orders/SO-1042", {"country": "NL", "priority": "high"}, "app:shop"),
    ("orders", "changed", "orders/SO-1042", {"country": "NL", "priority": "high"}, "app:shop"),
    ("port.berths", "occupied", "berths/6", {"quay": "north"}, "app:port office"),
    ("orders", "cancelled", "orders/SO-1039", {"country": "DE"}, "app:shop"),
)


SUBSCRIPTIONS: tuple[tuple[str, str, tuple[dict[str, Any], ...], str], ...] = (
    ("webshop mirror", "web team", ({"topic": "orders", "action": "created"},), "https://93.184.216.34/orders"),
    ("pilot office", "pilots", ({"topic": "port.*", "attributes": {"quay": "north"}},), "https://93.184.216.34/in"),
    ("ledger", "finance", ({"topic": "orders"}, {"topic": "refunds"}), "https://93.184.216.35/events"),
    ("old mirror", "web team", ({"topic": "orders.v0"},), "https://93.184.216.36/x"),
)

FAILURES = {"ledger": 10, "pilot office": 3}
UNWELL = "HTTP 503 Service Unavailable: the database is being upgraded"


async def subscribe(world: "World") -> None:
    """Receivers: one healthy, one monitored, one blocked, one paused."""
    actions, centre = world.front.operate.subscriptions, world.front.centre
    centre.adapters["webhook"] = receiver = ScriptedAdapter("webhook")
    receiver.always |= dict.fromkeys(FAILURES, TransientFailure(UNWELL, phase="answer", evidence=Evidence.FAILS))
    for name, owner, entries, url in SUBSCRIPTIONS:
        made = await actions.add(ADMIN, name, owner, [FilterEntry(**entry) for entry in entries], {"url": url})
        one = made.subscription
        world.places["subscription_id"] = one.subscription_id
        if name == "old mirror":
            await actions.pause(ADMIN, one.subscription_id, one.version, "moves to another machine")
        for _ in range(FAILURES.get(name, 0)):
            rule = partial(record, evidence=Evidence.FAILS, error=UNWELL, policy=BreakerPolicy(), now=world.clock.now())
            await centre.store.write(breakers.change, subscription_key(one.subscription_id), rule)


async def publish_events(world: "World", end: datetime) -> None:
    """Register the topics and publish an event every few minutes, one of them archived since."""
    operate = world.front.operate
    for topic in TOPICS:
        saved = await operate.topics.save(ADMIN, topic, None)
        if topic.name == "orders.v0":
            await operate.topics.archive(ADMIN, topic.name, saved.version)
    await subscribe(world)
    for number, (topic_name, action, resource, attributes, source) in enumerate(EVENTS):
        world.go_to(max(end - timedelta(minutes=16 - number), world.clock.now()))
        event = Event(
            event_id=world.make_id(),
            topic=topic_name,
            source=source,
            payload=json.dumps({"order": resource.rpartition("/")[2], "total": 129.5, "currency": "EUR"}),
            action=action,
            resource=resource,
            attributes=attributes,
            occurred_at=world.clock.now() - timedelta(seconds=2),
            correlation_id=f"session-{number % 2}",
        )
        await world.front.centre.ingest.publisher.publish(source, [event])
    world.places |= {"event_id": event.event_id, "topics": "orders"}
