"""`publish`: events that match 0, 1, 10 and 1,000 of 10,000 subscriptions: matching, recording, fan-out, ack.

Reference: `Ingest.submit` in the same run, batches of 500 notifications. Ours: `Publisher.publish`, one request after
the other. A row is a notification; with 0 matches, an event. With a route and a template the reference is `publish` to
one subscription.
"""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, insert

from bench.harness import Figure, Report, Stopwatch, compare
from bench.material import add_lists, items
from bench.stores import Stores
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.rendering.composer import Composer
from fieldpost.central.rendering.pool import RenderPool
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import routes, templates, topics
from fieldpost.central.store.notifications import lists
from fieldpost.central.store.schema.event_tables import subscriptions
from fieldpost.clock import SystemClock
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Template
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id, new_ids
from fieldpost.link.messages import Submit

SUBSCRIPTIONS = 10_000
BATCH = 500
SOURCE = "app:shop"
PAYLOAD = json.dumps({"order": {"number": 17, "customer": "ACME", "lines": [{"sku": "A-1", "count": 2}] * 8}})
CASES = ((0, 500), (1, 500), (10, 50), (1000, 2))
"""Matches per event, and events per request."""


async def run(report: Report, stores: Stores, quick: bool) -> None:
    for kind in ("sqlite", "postgresql"):
        async with stores.open(kind) as store:
            await add_lists(store)
            await store.write(add_subscriptions)
            await store.write(topics.add, Topic(name="orders.created"), datetime.now(UTC))
            ingest = Ingest(store, SystemClock())
            for matches, events in CASES:
                report.add(await _compare(kind, store, ingest, matches, events, 4 if quick else 12))
            report.add(await _compare_routes(kind, store, 4 if quick else 12))


async def _compare(kind: str, store: Store, ingest: Ingest, matches: int, count: int, requests: int) -> Figure:
    async def ours() -> float:
        made = [[make_event(matches, number) for number in range(count)] for _ in range(requests)]
        watch = Stopwatch()
        for published in made:
            verdicts = await ingest.publisher.publish(SOURCE, published)
            assert {verdict.verdict for verdict in verdicts} == {"accepted"}
        return watch.rate(requests * count * max(1, matches))

    async def reference() -> float:
        submits = [Submit(number, items(BATCH)) for number in range(requests)]
        watch = Stopwatch()
        for submit in submits:
            await ingest.submit("plant", submit)
        return watch.rate(requests * BATCH)

    notes = f"{count} events per request; reference: ingest of batches of {BATCH}"
    return await compare(f"publish {kind}, {matches} of {SUBSCRIPTIONS}", ours, reference, 5, "rows/s", notes)


async def _compare_routes(kind: str, store: Store, requests: int) -> Figure:
    """Events that a route leads to a list by a template, against events that match one subscription."""
    pool = RenderPool()
    ingest = Ingest(store, SystemClock(), composer=Composer(pool, {}))
    now = datetime.now(UTC)
    await store.write(topics.add, Topic(name="alarms.raised"), now)
    route_id, (list_name, *_) = new_id(now, os.urandom(10)), await store.read(lists.names, 1)
    entries = (FilterEntry(topic="alarms.*"),)
    await store.write(routes.add, EventRoute(route_id=route_id, name="b", filter=entries, list_name=list_name), now)
    body = "Customer {{ payload.order.customer }}:{% for one in payload.order.lines %} {{ one.sku }}{% endfor %}"
    template = Template(topic="alarms.raised", subject="{{ payload.order.number }}", body=body, created_at=now)
    assert await store.write(templates.add_version, template, None)

    async def publish(topic: str) -> float:
        made = [[replace(make_event(1, n), topic=topic) for n in range(BATCH)] for _ in range(requests)]
        watch = Stopwatch()
        for published in made:
            await ingest.publisher.publish(SOURCE, published)
        return watch.rate(requests * BATCH)

    try:
        notes = f"{BATCH} events per request; reference: the same with one subscription each"
        return await compare(
            f"publish {kind}, route and template",
            lambda: publish("alarms.raised"),
            lambda: publish("orders.created"),
            5,
            "rows/s",
            notes,
        )
    finally:
        await pool.close()


def make_event(matches: int, number: int) -> Event:
    attributes = {
        0: {"customer": f"nobody-{number}"},
        1: {"customer": f"c{number}"},
        10: {"group": f"g{number}"},
        1000: {"region": f"r{number}"},
    }[matches]
    event_id = new_id(datetime.now(UTC), os.urandom(10))
    return Event(event_id=event_id, topic="orders.created", source=SOURCE, payload=PAYLOAD, attributes=attributes)


def add_subscriptions(conn: Connection) -> None:
    """Each subscription has a filter of three entries, one for each number of matches."""
    now = datetime.now(UTC)
    rows = [
        {
            "subscription_id": subscription_id,
            "name": f"subscription {number}",
            "owner": "team",
            "filter": [
                {"topic": "orders.*", "attributes": {"customer": f"c{number}"}},
                {"topic": "orders.*", "attributes": {"group": f"g{number // 10}"}},
                {"topic": "orders.*", "attributes": {"region": f"r{number // 1000}"}},
            ],
            "state": "active",
            "settings": {},
            "secrets": {},
            "created_at": now,
            "updated_at": now,
        }
        for number, subscription_id in enumerate(new_ids(now, os.urandom(10 * SUBSCRIPTIONS)))
    ]
    conn.execute(insert(subscriptions), rows)
