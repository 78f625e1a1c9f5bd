"""Topics and events of the sample world: an order system and a port system publish them."""

import json
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import BreakerPolicy, record
from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.outcome import Delivered, Evidence, Outcome, TransientFailure
from fieldpost.core.events.event import Event, notification_id_of
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.subscription import subscription_key
from fieldpost.core.events.template import Template
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


def _answer(url: str, status: int) -> Outcome:
    """How a receiver answers, with the exchange that is kept of it."""
    is_well = status < 300
    tries = [HttpTry(offset_ms=600 * n, duration_ms=84 + n, status=status) for n in range(1 if is_well else 3)]
    exchange = Exchange(
        url=url,
        tries=tuple(tries),
        request_headers={"Content-Type": "application/json", "webhook-timestamp": "1763", "webhook-signature": "***"},
        status=status,
        response_headers={"Server": "nginx", "Content-Type": "text/plain"},
        response_body="" if is_well else "upgrading the database, back at six",
    )
    if is_well:
        return Delivered(reply=str(status), phase="answer", exchanges=(exchange,))
    return TransientFailure(UNWELL, phase="answer", evidence=Evidence.FAILS, exchanges=(exchange,))


async def subscribe(world: "World") -> None:
    """Receivers: one healthy, one monitored, one blocked, one paused."""
    actions, centre = world.front.operate.subscriptions, world.front.centre
    centre.adapters["webhook"] = receiver = ScriptedAdapter("webhook")
    for name, _, _, url in SUBSCRIPTIONS:
        receiver.always[name] = _answer(url, 503 if name in FAILURES else 204)
    for name, owner, entries, url in SUBSCRIPTIONS:
        made = await actions.add(ADMIN, name, owner, [FilterEntry(**entry) for entry in entries], {"url": url})
        one = made.subscription
        world.places[name] = one.subscription_id
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
    entries = (FilterEntry(topic="orders", attributes={"country": "NL"}),)
    route = EventRoute(
        route_id="", name="orders-nl", filter=entries, list_name="maintenance", cooldown_s=600.0, cooldown_by="country"
    )
    route = await operate.routes.add(ADMIN, route)
    text = Template(topic="orders", subject="Order {{ payload.order }}", body="Total {{ payload.total }} EUR")
    await operate.templates.save(ADMIN, text, None)
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
        if topic_name == "port.berths":
            world.notable["webhook"] = notification_id_of(event.event_id, world.places["pilot office"])
        await world.front.centre.deliver()
    world.places |= {"event_id": event.event_id, "topics": "orders", "route_id": route.route_id, "templates": "orders"}
    world.places["subscription_id"] = world.places["pilot office"]
