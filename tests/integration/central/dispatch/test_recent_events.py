"""Events of recent claims are kept within a limit."""

import os

import pytest

from fieldpost.central.dispatch import recent_events
from fieldpost.central.dispatch.recent_events import SIZE_OF_REST, RecentEvents
from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.core.events.event import Event
from fieldpost.core.ids import new_id
from support.centre import Centre


async def test_an_event_is_read_once_while_it_is_among_the_recent_ones(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = '{"order": 17}'
    monkeypatch.setattr(recent_events, "SIZE_MAX", 2 * (len(payload) + SIZE_OF_REST))
    publisher = Ingest(centre.store, centre.clock, events=PublishOptions(open_topics=True)).publisher
    one, two, three = (new_id(centre.clock.now(), os.urandom(10)) for _ in range(3))
    events = [Event(event_id=id_, topic="orders", source="app:shop", payload=payload) for id_ in (one, two, three)]
    await publisher.publish("app:shop", events)
    recent = RecentEvents(centre.store)
    found = await recent.these([one, two])
    assert [found[id_].event.payload for id_ in (one, two)] == [payload] * 2
    await centre.execute(f"delete from events where event_id in ('{one}', '{two}')")
    assert await recent.these([one]) == {one: found[one]}
    assert set(await recent.these([three])) == {three}
    assert set(await recent.these([one, two, three])) == {one, three}, "the least recently used one was dropped"
