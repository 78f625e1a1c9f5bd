"""Publishing: record events and fan them out to subscriptions, in one transaction.

Each event is judged on its own and gets its own verdict, as at `submit`:

    accepted    recorded, with one notification for each subscription that matches (possibly none)
    duplicate   the same id with the same content is recorded already; nothing is added
    rejected    unknown or archived topic, or the id is recorded with other content or from another source

A compiled matcher over all subscriptions is kept per node and recompiled when the catalogue of subscriptions changes.
It is used under the catalogue's shared lock, so a subscription that is active at the commit has its notification.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.ingest.fair_queue import Pace
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, subscriptions, topics
from fieldpost.central.store.events.events import Matched, StoredEvent
from fieldpost.core.errors import Unavailable
from fieldpost.core.events.event import Event, event_digest, notification_id_of
from fieldpost.core.events.filter import Matcher
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.events.topic import Topic
from fieldpost.link.messages import ACCEPTED, DUPLICATE, REJECTED

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """[events]"""

    retention_days: float = 365.0
    """How long events are kept, at least as long as their last notification."""
    open_topics: bool = False
    """Accept events of topics that are not registered."""


@dataclass(frozen=True, slots=True)
class EventVerdict:
    """The result for one event."""

    event_id: str
    verdict: str
    code: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """Subscriptions and topics, compiled, as of a version of the catalogue."""

    version: int
    matcher: Matcher[str]
    subscriptions: dict[str, Subscription]
    topics: dict[str, Topic]


class Publisher:
    """One for a central node."""

    def __init__(self, store: Store, pace: Pace, options: PublishOptions | None = None) -> None:
        self._store = store
        self._pace = pace
        self._options = options or PublishOptions()
        self._catalogue: _Catalogue | None = None

    async def publish(self, source: str, published: Sequence[Event]) -> list[EventVerdict]:
        """Record these events, all of one source; returns after the commit. Raises Unavailable if the store cannot."""
        async with self._pace.storing(source, len(published), has_more=len(published) > 1):
            verdicts, catalogue = await self._store.write(
                _publish, published, self._catalogue, self._options.open_topics, now=self._store.now()
            )
        self._catalogue = catalogue
        counts = Counter(verdict.verdict for verdict in verdicts)
        if counts[ACCEPTED]:
            self._store.wake.set()
        if counts[REJECTED]:
            codes = dict(Counter(str(v.code) for v in verdicts if v.verdict == REJECTED))
            ids = [v.event_id for v in verdicts if v.verdict == REJECTED][:10]
            log.warning("publish.rejected", source=source, codes=codes, ids=ids)
        return verdicts


def _publish(
    conn: Connection,
    published: Sequence[Event],
    cached: _Catalogue | None,
    is_open: bool,
    *,
    now: datetime | None,
) -> tuple[list[EventVerdict], _Catalogue]:
    catalogue = _current(conn, cached)
    refusals = {id(e): refusal for e in published if (refusal := _refusal(e, catalogue, is_open)) is not None}
    # An id may occur twice in a request: the first one counts, the others are judged against it.
    first = {e.event_id: e for e in reversed(published) if id(e) not in refusals}
    digests = {id(e): event_digest(e) for e in published if id(e) not in refusals}
    matched = [Matched(e, digests[id(e)], _notifications(e, catalogue)) for e in first.values()]
    recorded = events.record(conn, matched, now=now) if matched else set()
    stored = events.stored(conn, first.keys() - recorded)
    if len(stored) < len(first.keys() - recorded):
        raise Unavailable("store.changed", "some of these events were purged just now; publish them again")
    verdicts = []
    for e in published:
        if (refusal := refusals.get(id(e))) is not None:
            verdicts.append(refusal)
        elif first[e.event_id] is e and e.event_id in recorded:
            verdicts.append(EventVerdict(e.event_id, ACCEPTED))
        else:
            own = first[e.event_id]
            known = stored.get(e.event_id) or StoredEvent(own.source, digests[id(own)])
            verdicts.append(_judge(e, digests[id(e)], known))
    return verdicts, catalogue


def _current(conn: Connection, cached: _Catalogue | None) -> _Catalogue:
    version = subscriptions.lock_shared(conn)
    if cached is not None and cached.version == version:
        return cached
    active = {one.subscription_id: one for one in subscriptions.active(conn)}
    return _Catalogue(
        version,
        Matcher((key, one.filter) for key, one in active.items()),
        active,
        {topic.name: topic for topic in topics.all_topics(conn)},
    )


def _refusal(e: Event, catalogue: _Catalogue, is_open: bool) -> EventVerdict | None:
    topic = catalogue.topics.get(e.topic)
    if topic is None and not is_open:
        return EventVerdict(e.event_id, REJECTED, "topic.unknown", f"topic {e.topic!r} is not registered")
    if topic is not None and topic.archived_at is not None:
        return EventVerdict(e.event_id, REJECTED, "topic.archived", f"topic {e.topic!r} is archived")
    return None


def _notifications(e: Event, catalogue: _Catalogue) -> list[tuple[str, str, str]]:
    return [
        (notification_id_of(e.event_id, key), subscription_key(key), catalogue.subscriptions[key].name)
        for key in catalogue.matcher.match(e)
    ]


def _judge(e: Event, digest: bytes, stored: StoredEvent) -> EventVerdict:
    if stored == StoredEvent(e.source, digest):
        return EventVerdict(e.event_id, DUPLICATE)
    # The message reveals nothing of the recorded event: it may be another application's.
    return EventVerdict(
        e.event_id, REJECTED, "event.conflict", "this event_id is recorded with other content or from another source"
    )
