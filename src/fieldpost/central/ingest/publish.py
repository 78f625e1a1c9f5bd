"""Publishing: record events and fan them out to subscriptions, in one transaction.

Each event is judged on its own and gets its own verdict, as at `submit`:

    accepted    recorded, with one notification for each subscription that matches (possibly none)
    duplicate   the same id with the same content is recorded already; nothing is added
    rejected    unknown or archived topic, or the id is recorded with other content or from another source

A compiled matcher over all subscriptions is kept per node. Events are matched before their transaction, which then
compares the version of the catalogue of subscriptions under its shared lock and matches again if it changed meanwhile.
So a subscription that is active at the commit has its notification.

A transaction holds at most ROWS_MAX rows, or one event: a request whose events match many subscriptions takes several.
Publishers wait in the same fair queue as sites, and each pays for the rows that its events become.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import Connection

from fieldpost.central.ingest.fair_queue import LARGE_BATCH, Pace
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, subscriptions, topics
from fieldpost.central.store.events.events import Matched, StoredEvent
from fieldpost.core.errors import out_of_range
from fieldpost.core.events.audience import is_reserved, may_get
from fieldpost.core.events.event import Event, event_digest, notification_id_of
from fieldpost.core.events.filter import Matcher
from fieldpost.core.events.notice import NOTICE_TYPES
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.events.topic import Topic
from fieldpost.link.messages import ACCEPTED, DUPLICATE, REJECTED

log = structlog.get_logger()

ROWS_MAX = 2000
"""The most rows of one transaction, unless a single event has more; as many as the fair queue admits at a time."""
DAYS_MAX = 36525


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """[events]"""

    retention_days: float = 365.0
    """How long events are kept, at least as long as their last notification."""
    open_topics: bool = False
    """Accept events of topics that are not registered."""

    def __post_init__(self) -> None:
        if not 0 < self.retention_days <= DAYS_MAX:
            raise out_of_range("events.retention_days", "must be greater than 0 and at most a hundred years")


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
    matcher: Matcher[tuple[str, str, str]]
    """Subscription id, delivery key and name of each subscription."""
    topics: dict[str, Topic]
    subscriptions: dict[str, Subscription]
    """By id."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An event with its digest and what the catalogue makes of it: a refusal, or notifications."""

    event: Event
    digest: bytes
    refusal: EventVerdict | None
    notifications: Sequence[tuple[str, str, str]]


class Publisher:
    """One for a central node."""

    def __init__(self, store: Store, pace: Pace[Any, Any], options: PublishOptions | None = None) -> None:
        self._store = store
        self._pace = pace
        self._options = options or PublishOptions()
        self._catalogue: _Catalogue | None = None

    async def publish(self, source: str, published: Sequence[Event | EventVerdict]) -> list[EventVerdict]:
        """Record these events, all of one source; returns after the commit. Verdicts among them are kept in place.

        Raises Unavailable if the store cannot; parts of the request may be recorded then, and are duplicates later.
        """
        checked = [one for one in published if isinstance(one, Event)]
        judged: list[EventVerdict] = []
        while len(judged) < len(checked):
            if (catalogue := self._catalogue) is None:
                catalogue = await self._store.read(_load)
            part = _prepare_part(checked, len(judged), catalogue, self._options.open_topics)
            rows = sum(1 + len(one.notifications) for one in part)
            has_more = len(judged) + len(part) < len(checked) or rows >= LARGE_BATCH
            async with self._pace.storing(source, rows, has_more=has_more):
                verdicts, self._catalogue = await self._store.write(
                    _publish, part, catalogue, self._options.open_topics, now=self._store.now()
                )
            judged += verdicts
            # Matching is work of the event loop: let others run between the parts.
            await asyncio.sleep(0)
        if any(verdict.verdict == ACCEPTED for verdict in judged):
            self._store.wake.set()
        in_order = iter(judged)
        verdicts = [next(in_order) if isinstance(one, Event) else one for one in published]
        _log_rejected(source, verdicts)
        return verdicts


def _log_rejected(source: str, verdicts: Sequence[EventVerdict]) -> None:
    if rejected := [v for v in verdicts if v.verdict == REJECTED]:
        codes = dict(Counter(str(v.code) for v in rejected))
        log.warning("publish.rejected", source=source, codes=codes, ids=[v.event_id for v in rejected[:10]])


def _prepare_part(published: Sequence[Event], begin: int, catalogue: _Catalogue, is_open: bool) -> list[_Candidate]:
    """The next events, as many as fit in one transaction."""
    part: list[_Candidate] = []
    rows = 0
    for number in range(begin, len(published)):
        one = _prepare(published[number], catalogue, is_open)
        rows += 1 + len(one.notifications)
        if part and rows > ROWS_MAX:
            break
        part.append(one)
    return part


def _prepare(e: Event, catalogue: _Catalogue, is_open: bool) -> _Candidate:
    refusal = _refusal(e, catalogue, is_open)
    notifications = [] if refusal is not None else _notifications(e, catalogue)
    return _Candidate(e, event_digest(e), refusal, notifications)


def _publish(
    conn: Connection, part: Sequence[_Candidate], catalogue: _Catalogue, is_open: bool, *, now: datetime | None
) -> tuple[list[EventVerdict], _Catalogue]:
    if subscriptions.lock_shared(conn) != catalogue.version:
        catalogue = _load(conn)
        part = [_prepare(one.event, catalogue, is_open) for one in part]
    # An id may occur twice in a request: the first one counts, the others are judged against it.
    first = {one.event.event_id: one for one in reversed(part) if one.refusal is None}
    matched = [Matched(one.event, one.digest, one.notifications) for one in first.values()]
    recorded = events.record(conn, matched, now=now) if matched else set()
    stored = events.stored(conn, first.keys() - recorded)
    verdicts = []
    for one in part:
        event_id = one.event.event_id
        if one.refusal is not None:
            verdicts.append(one.refusal)
        elif first[event_id] is one and event_id in recorded:
            verdicts.append(EventVerdict(event_id, ACCEPTED))
        else:
            own = first[event_id]
            known = StoredEvent(own.event.source, own.digest) if event_id in recorded else stored[event_id]
            verdicts.append(_judge(one, known))
    return verdicts, catalogue


def _load(conn: Connection) -> _Catalogue:
    # The version first: a change in between makes the catalogue too new for its version, and it is loaded again.
    version = subscriptions.version(conn)
    active = subscriptions.active(conn)
    return _Catalogue(
        version,
        Matcher(((s.subscription_id, subscription_key(s.subscription_id), s.name), s.filter) for s in active),
        {topic.name: topic for topic in topics.all_topics(conn)},
        {one.subscription_id: one for one in active},
    )


def _refusal(e: Event, catalogue: _Catalogue, is_open: bool) -> EventVerdict | None:
    topic = catalogue.topics.get(e.topic)
    if is_reserved(e):
        return EventVerdict(e.event_id, REJECTED, "topic.reserved", f"only central publishes to topic {e.topic!r}")
    if topic is None and not is_open and e.topic not in NOTICE_TYPES:
        return EventVerdict(e.event_id, REJECTED, "topic.unknown", f"topic {e.topic!r} is not registered")
    if topic is not None and topic.archived_at is not None:
        return EventVerdict(e.event_id, REJECTED, "topic.archived", f"topic {e.topic!r} is archived")
    return None


def _notifications(e: Event, catalogue: _Catalogue) -> list[tuple[str, str, str]]:
    topic = catalogue.topics.get(e.topic)
    return [
        (notification_id_of(e.event_id, subscription_id), key, name)
        for subscription_id, key, name in catalogue.matcher.match(e)
        if may_get(catalogue.subscriptions[subscription_id], e, topic)
    ]


def _judge(one: _Candidate, stored: StoredEvent) -> EventVerdict:
    event_id = one.event.event_id
    if stored == StoredEvent(one.event.source, one.digest):
        return EventVerdict(event_id, DUPLICATE)
    # The message reveals nothing of the recorded event: it may be another application's.
    return EventVerdict(
        event_id, REJECTED, "event.conflict", "this event_id is recorded with other content or from another source"
    )
