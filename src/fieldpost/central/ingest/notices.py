"""Publishing notices: rows of `notices` become events on topics `fieldpost.subscription.*`.

A notice is written with the change that it reports. Every node publishes what it finds; the id of the event is fixed,
so that two nodes, or a node that dies before it removes the rows, publish it once.
"""

import json

import structlog
from sqlalchemy import Connection

from fieldpost.central.ingest.publish import Publisher
from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import notices, subscriptions
from fieldpost.central.store.events.notices import StoredNotice
from fieldpost.clock import Clock
from fieldpost.core.events.event import Event
from fieldpost.core.events.notice import NOTICE_TOPICS, SOURCE
from fieldpost.core.events.subscription import Subscription

INTERVAL_S = 2.0
BATCH = 200

log = structlog.get_logger()


class NoticePublisher:
    """One for a central node."""

    def __init__(self, store: Store, clock: Clock, publisher: Publisher) -> None:
        self._store = store
        self._clock = clock
        self._publisher = publisher

    async def run(self) -> None:
        """Publish notices until cancelled."""
        while True:
            with logged("notices"):
                await self.sweep()
            await self._clock.sleep(INTERVAL_S)

    async def sweep(self) -> int:
        """Publish all notices; how many."""
        count = 0
        while found := await self._store.read(_first):
            events = [_event(stored, about) for stored, about in found if about is not None]
            await self._publisher.publish(SOURCE, events)
            await self._store.write(notices.remove, [stored.event_id for stored, _ in found])
            for event in events:
                log.info("notice.published", topic=event.topic, subscription_id=event.resource)
            count += len(found)
        return count


def _first(conn: Connection) -> list[tuple[StoredNotice, Subscription | None]]:
    found = notices.first(conn, BATCH)
    about = subscriptions.these(conn, {stored.notice.subscription_id for stored in found})
    return [(stored, about.get(stored.notice.subscription_id)) for stored in found]


def _event(stored: StoredNotice, about: Subscription) -> Event:
    notice = stored.notice
    data = {"subscription_id": about.subscription_id, "name": about.name, "owner": about.owner, **notice.data}
    return Event(
        event_id=stored.event_id,
        topic=notice.topic,
        source=SOURCE,
        payload=json.dumps(data, ensure_ascii=False),
        action=notice.topic.removeprefix(NOTICE_TOPICS),
        resource=about.subscription_id,
        attributes={"subscription": about.subscription_id, "owner": about.owner, "name": about.name},
        occurred_at=stored.created_at,
    )
