"""`publish`: events that match 0, 1, 10 and 1,000 of 10,000 subscriptions: matching, recording, fan-out, ack.

Reference: `Ingest.submit` in the same run, batches of 500 notifications. Ours: `Publisher.publish`, one request after
the other. A row is a notification; with 0 matches, an event.
"""

import json
import os
from datetime import UTC, datetime

from sqlalchemy import Connection, insert

from bench.harness import Figure, Report, Stopwatch, compare
from bench.material import add_lists, items
from bench.stores import Stores
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import topics
from fieldpost.central.store.schema.event_tables import subscriptions
from fieldpost.clock import SystemClock
from fieldpost.core.events.event import Event
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
