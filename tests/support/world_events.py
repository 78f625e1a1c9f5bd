"""Topics and events of the sample world: an order system and a port system publish them."""

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fieldpost.core.events.event import Event
from fieldpost.core.events.topic import Topic
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


async def publish_events(world: "World", end: datetime) -> None:
    """Register the topics and publish an event every few minutes, one of them archived since."""
    operate = world.front.operate
    for topic in TOPICS:
        saved = await operate.topics.save(ADMIN, topic, None)
        if topic.name == "orders.v0":
            await operate.topics.archive(ADMIN, topic.name, saved.version)
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
