"""Health of events: topics nobody gets, events and routes without a template."""

from datetime import timedelta

import pytest

from fieldpost.central.store.events import routes, topics
from fieldpost.central.watch.events.event_health import read_event_health
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.topic import Topic
from support.centre import Centre

ID = "0198c8a0-0000-7000-8000-{n:012d}"
WEEK = timedelta(days=7)


@pytest.mark.req("EVT-10", "DEC-58")
async def test_topics_without_subscribers_and_waiting_events_are_listed(centre: Centre) -> None:
    now = centre.clock.now()
    await centre.add_list("ops", "ann@example.org")
    for name in ("DOWN", "UP", "nobody"):
        await centre.store.write(topics.add, Topic(name=name), now)
    entries = (FilterEntry(topic="DOWN"), FilterEntry(topic="UP"))
    route = EventRoute(route_id=ID.format(n=99), name="services", filter=entries, list_name="ops")
    await centre.store.write(routes.add, route, now)
    made = [
        Event(event_id=ID.format(n=n), topic=name, source="app:a", payload="{}")
        for n, name in enumerate(("DOWN", "DOWN", "nobody", "nobody"))
    ]
    await centre.ingest.publisher.publish("app:a", made)
    found = await centre.store.read(read_event_health, now, WEEK)
    assert found.unmatched == ["nobody"]
    assert [(one.topic, one.type, one.count) for one in found.waiting] == [("DOWN", "email", 2)]
    assert found.without_template == ["services"]
    later = await centre.store.read(read_event_health, now + timedelta(days=8), WEEK)
    assert (later.unmatched, later.waiting) == ([], [])
