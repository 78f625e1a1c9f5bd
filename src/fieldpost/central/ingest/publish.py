"""Publishing: record events and fan them out to subscriptions and routes, in one transaction.

Each event is judged on its own and gets its own verdict, as at `submit`:

    accepted    recorded, with one notification for each subscription and list that match (possibly none)
    duplicate   the same id with the same content is recorded already; nothing is added
    rejected    unknown or archived topic, or the id is recorded with other content or from another source

A compiled catalogue of subscriptions, routes and templates is kept per node. Events are matched and templates rendered
before their transaction, which then compares the version of the catalogue under its shared lock. If it has changed,
they are matched and rendered once more; if it changed again by then, the transaction matches them itself, and leaves
rendering to the dispatcher (`routing.draft`). So a subscription or route that is active at the commit has its
notification.

A transaction holds at most ROWS_MAX rows, or one event: a request whose events match many subscriptions takes several.
Publishers wait in the same fair queue as sites, and each pays for the rows that its events become.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog
from sqlalchemy import Connection

from fieldpost.central.ingest import routing
from fieldpost.central.ingest.catalogue import Catalogue, RouteMatch, load
from fieldpost.central.ingest.fair_queue import LARGE_BATCH, Pace
from fieldpost.central.ingest.routing import RoutedEvent, RoutedResult
from fieldpost.central.rendering.composer import Composer, NoRenderer
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, outbox_reports, subscriptions
from fieldpost.central.store.events.events import Matched, StoredEvent
from fieldpost.core.errors import InvalidInput, out_of_range
from fieldpost.core.events.event import Event, event_digest
from fieldpost.core.events.members import with_payload_attributes
from fieldpost.core.events.outbox import check_outbox_report
from fieldpost.core.events.result import EventState, event_state
from fieldpost.core.notification import Status
from fieldpost.core.zgw.notification import as_event_of_kanaal
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
    template_wait_days: float = 7.0
    """Saving a missing template makes notifications of waiting events that are at most this old."""

    def __post_init__(self) -> None:
        if not 0 < self.retention_days <= DAYS_MAX:
            raise out_of_range("events.retention_days", "must be greater than 0 and at most a hundred years")
        if not 0 < self.template_wait_days <= DAYS_MAX:
            raise out_of_range("events.template_wait_days", "must be greater than 0 and at most a hundred years")


@dataclass(frozen=True, slots=True)
class EventVerdict:
    """The result for one event."""

    event_id: str
    verdict: str
    code: str | None = None
    error: str | None = None
    state: EventState | None = None
    """The state of an accepted event."""
    field: str | None = None
    """The invalid field of a rejected one, where it is known."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An event with its digest and its result by the catalogue: a rejection, or notifications."""

    published: Event
    event: Event
    """As published, with registered attributes from the payload."""
    digest: bytes
    refusal: EventVerdict | None
    notifications: Sequence[tuple[str, str, str]] = ()
    """For subscriptions."""
    matches: Sequence[RouteMatch] = ()
    routed: Sequence[RoutedEvent] = ()
    """For routes, once they are composed."""

    @property
    def rows(self) -> int:
        return 1 + len(self.notifications) + len(self.matches)


class Publisher:
    """One for a central node."""

    def __init__(
        self,
        store: Store,
        pace: Pace[Any, Any],
        options: PublishOptions | None = None,
        composer: Composer | None = None,
    ) -> None:
        self._store = store
        self._pace = pace
        self._options = options or PublishOptions()
        self._composer = composer or Composer(NoRenderer(), {})
        self._catalogue: Catalogue | None = None

    async def publish(self, source: str, published: Sequence[Event | EventVerdict]) -> list[EventVerdict]:
        """Record these events, all of one source; returns after the commit. Verdicts among them are kept in place.

        Raises Unavailable if the store cannot; parts of the request may be recorded then, and are duplicates later.
        """
        checked = [one for one in published if isinstance(one, Event)]
        judged: list[EventVerdict] = []
        is_last_try = False
        while len(judged) < len(checked):
            if (catalogue := self._catalogue) is None:
                catalogue = await self._store.read(load)
            part = _prepare_part(checked, len(judged), catalogue, self._options.open_topics)
            part = await self._compose(part)
            rows = sum(one.rows for one in part)
            has_more = len(judged) + len(part) < len(checked) or rows >= LARGE_BATCH
            async with self._pace.storing(source, rows, has_more=has_more):
                verdicts, self._catalogue = await self._store.write(
                    _publish, part, catalogue, self._options.open_topics, is_last_try, now=self._store.now()
                )
            # Nothing was recorded if routes or templates changed meanwhile: render once more with the current ones.
            is_last_try = not verdicts
            judged += verdicts
            # Matching is work of the event loop: let others run between the parts.
            await asyncio.sleep(0)
        if any(verdict.verdict == ACCEPTED for verdict in judged):
            self._store.wake.set()
        in_order = iter(judged)
        verdicts = [next(in_order) if isinstance(one, Event) else one for one in published]
        _log_rejected(source, verdicts)
        return verdicts

    async def save_report(self, source: str, open_count: int, oldest_age_s: float) -> None:
        """Store the report of a relay about its outbox."""
        check_outbox_report(open_count, oldest_age_s)
        await self._store.write(outbox_reports.save, source, open_count, oldest_age_s, now=self._store.now())

    async def _compose(self, part: Sequence[_Candidate]) -> list[_Candidate]:
        """Render the notifications for routes, before the transaction."""
        matched = [(one.event, match) for one in part for match in one.matches]
        if not matched:
            return list(part)
        composed = iter(await routing.compose(self._composer, matched))
        return [replace(one, routed=[next(composed) for _ in one.matches]) if one.matches else one for one in part]


def _log_rejected(source: str, verdicts: Sequence[EventVerdict]) -> None:
    if rejected := [v for v in verdicts if v.verdict == REJECTED]:
        codes = dict(Counter(str(v.code) for v in rejected))
        log.warning("publish.rejected", source=source, codes=codes, ids=[v.event_id for v in rejected[:10]])


def _prepare_part(published: Sequence[Event], begin: int, catalogue: Catalogue, is_open: bool) -> list[_Candidate]:
    """The next events, as many as fit in one transaction."""
    part: list[_Candidate] = []
    rows = 0
    for number in range(begin, len(published)):
        one = _prepare(published[number], catalogue, is_open)
        rows += one.rows
        if part and rows > ROWS_MAX:
            break
        part.append(one)
    return part


def _prepare(published: Event, catalogue: Catalogue, is_open: bool) -> _Candidate:
    digest = event_digest(published)
    refused = catalogue.refusal(published, is_open=is_open)
    if refused is not None:
        return _Candidate(published, published, digest, EventVerdict(published.event_id, REJECTED, *refused))
    topic = catalogue.topics.get(published.topic)
    try:
        event = as_event_of_kanaal(with_payload_attributes(published, topic), topic)
    except InvalidInput as error:
        refusal = EventVerdict(published.event_id, REJECTED, error.code, error.message, field=error.field)
        return _Candidate(published, published, digest, refusal)
    return _Candidate(published, event, digest, None, catalogue.subscribers(event), catalogue.matches(event))


def _prepare_late(published: Event, catalogue: Catalogue, is_open: bool) -> _Candidate:
    """The same within the transaction, where nothing can be rendered: notifications for routes become drafts."""
    one = _prepare(published, catalogue, is_open)
    return replace(one, routed=[routing.draft(one.event, match) for match in one.matches])


def _publish(
    conn: Connection,
    part: Sequence[_Candidate],
    catalogue: Catalogue,
    is_open: bool,
    is_last_try: bool,
    *,
    now: datetime | None,
) -> tuple[list[EventVerdict], Catalogue]:
    """The verdicts, and the catalogue that led to them; none if the events are to be rendered again."""
    if subscriptions.lock_shared(conn) != catalogue.version:
        catalogue = load(conn)
        if catalogue.routes and not is_last_try:
            return [], catalogue
        part = [_prepare_late(one.published, catalogue, is_open) for one in part]
    # An id may occur twice in a request: the first one counts, the others are judged against it.
    first = {one.event.event_id: one for one in reversed(part) if one.refusal is None}
    matched = [Matched(one.event, one.digest, one.notifications, len(one.matches)) for one in first.values()]
    recorded = events.record(conn, matched, now=now) if matched else set()
    routed = [
        r for one in part if one.event.event_id in recorded and first[one.event.event_id] is one for r in one.routed
    ]
    results = routing.record(conn, routed, now=now) if routed else {}
    stored = events.stored(conn, first.keys() - recorded)
    verdicts = []
    for one in part:
        event_id = one.event.event_id
        if one.refusal is not None:
            verdicts.append(one.refusal)
        elif first[event_id] is one and event_id in recorded:
            verdicts.append(EventVerdict(event_id, ACCEPTED, state=_state(one, results.get(event_id))))
        else:
            own = first[event_id]
            known = StoredEvent(own.event.source, own.digest) if event_id in recorded else stored[event_id]
            verdicts.append(_judge(one, known))
    return verdicts, catalogue


def _state(one: _Candidate, routed: RoutedResult | None) -> EventState:
    counts = Counter(routed.counts if routed else ())
    counts[Status.PENDING] += len(one.notifications)
    return event_state(counts, counts.total(), lacks_template=routed is not None and routed.lacks_template)


def _judge(one: _Candidate, stored: StoredEvent) -> EventVerdict:
    event_id = one.event.event_id
    if stored == StoredEvent(one.event.source, one.digest):
        return EventVerdict(event_id, DUPLICATE)
    # The message reveals nothing of the recorded event: it may be another application's.
    return EventVerdict(
        event_id, REJECTED, "event.conflict", "this event_id is recorded with other content or from another source"
    )
