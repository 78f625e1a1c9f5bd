"""`/events`: publish events, search them, and show their results.

A payload is stored byte for byte, so it is cut out of the request as it arrived and never parsed: the parser of the
request checks its grammar while skipping it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from fieldpost.central.ingest.publish import EventVerdict
from fieldpost.central.watch.events.events import EventDetail, EventNotification, EventPage, WithheldFrom
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.event import EVENTS_MAX, REQUEST_BYTES_MAX, Event, RecordedEvent, check_event
from fieldpost.core.search.event_filter import EventFilter
from fieldpost.core.search.filters import EVENT_FILTERS
from fieldpost.core.text import truncate
from fieldpost.front.allowance import LinkKind
from fieldpost.front.api.events.event_results import OutboxState
from fieldpost.front.body import check_content_type, read_body
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.link.http.body import Body, decode_strictly
from fieldpost.link.http.endpoint_spec import PAGED, filter_parameters, spec
from fieldpost.link.http.view import View, ViewField, within
from fieldpost.link.messages import ACCEPTED, REJECTED

CREATED = 201

JsonPayload = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]


class NewEvent(Body, frozen=True, kw_only=True):
    """One event."""

    event_id: str
    topic: str
    payload: JsonPayload
    """A JSON object of at most 256 KiB, stored byte for byte."""
    action: str | None = None
    resource: str | None = None
    attributes: Mapping[str, str] = {}
    """Values that subscriptions filter by."""
    occurred_at: str | None = None
    correlation_id: str | None = None


class NewEvents(Body, frozen=True):
    """Up to 500 events; a relay adds the state of its outbox."""

    events: list[NewEvent]
    outbox: OutboxState | None = None


class _Events(Body, frozen=True):
    events: list[msgspec.Raw]
    outbox: OutboxState | None = None


class _EventId(msgspec.Struct, frozen=True):
    event_id: str


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """The verdicts of a batch, in its order."""

    results: tuple[EventVerdict, ...]


PUBLISHED = View(
    "PublishedView",
    EventVerdict,
    "event_id verdict",
    description="`accepted`, or `duplicate` if it was recorded before; either way it is on disk.",
)
VERDICT = View(
    "EventVerdictView",
    EventVerdict,
    "event_id verdict state code error",
    description="`accepted`, `duplicate`, or `rejected` with code and reason; do not repeat a rejected one unchanged."
    " `state` is that of an accepted event: `sent` if nobody is to be notified.",
)
BATCH = View("PublishedBatchView", PublishedBatch, ViewField("results", view=VERDICT))


def _payload(detail: EventDetail) -> msgspec.Raw | None:
    return None if detail.payload is None else msgspec.Raw(detail.payload)


_FIELDS = "event_id topic source action resource attributes occurred_at correlation_id"
EVENT = View(
    "EventLine",
    RecordedEvent,
    within("event", _FIELDS),
    "created_at match_count",
    description="An event in a list. `match_count` is the number of subscriptions and routes that matched it.",
)
PAGE = View("EventPageView", EventPage, ViewField("events", view=EVENT), "next_cursor as_of")
RESULTING = View(
    "EventNotificationView",
    EventNotification,
    "notification_id receiver=list_name status retry_count last_error next_attempt_at delivered_at",
)
WITHHELD = View(
    "WithheldFromView",
    WithheldFrom,
    "route_id route_name list_name list_type reason",
    description="A route that matched the event without making a notification: `no_template` if the event waits for a"
    " template, `cooldown` if it was suppressed.",
)
DETAIL = View(
    "EventDetailView",
    EventDetail,
    within("recorded.event", _FIELDS),
    within("recorded", "created_at match_count"),
    ViewField("payload", _payload),
    "counts",
    ViewField("notifications", view=RESULTING),
    ViewField("withheld", view=WITHHELD),
    "next_cursor as_of",
    description="An event with its notifications, a page of them, and their numbers by status. `payload` is null for"
    " viewers.",
)


@spec(BATCH, body=(NewEvent, NewEvents), other_answers={CREATED: PUBLISHED}, problems=(409, 429))
async def publish(call: Call) -> ApiAnswer:
    """Publish one event, or up to 500 as `{"events": […]}`. One event is answered as a notification is: 201 when it is
    on disk, 200 if it already was, 409 if its id is recorded with other content or from another source. Several are
    answered with 200 and a result for each; a rejected one does not affect the others."""
    check_content_type(call.request, "application/json")
    data = await read_body(call.request, REQUEST_BYTES_MAX)
    source = call.actor.source
    given = _split(data)
    if given is None:
        event = _read(data, source)
        (verdict,) = await _publish(call, source, [event], len(data))
        if verdict.verdict == REJECTED:
            raise _refusal(verdict)
        return ApiAnswer(verdict, CREATED if verdict.verdict == ACCEPTED else 200, view=PUBLISHED)
    if not 1 <= len(given.events) <= EVENTS_MAX:
        raise InvalidInput("event.too_many", f"a request must have 1 to {EVENTS_MAX} events", field="events")
    if given.outbox is not None:
        await call.backend.ingest.publisher.save_report(source, given.outbox.open_count, given.outbox.oldest_age_s)
    verdicts = await _publish(call, source, [_read_or_reject(one, source) for one in given.events], len(data))
    return ApiAnswer(PublishedBatch(tuple(verdicts)))


@spec(PAGE, query=(*filter_parameters(EVENT_FILTERS), *PAGED))
async def page(call: Call) -> EventPage:
    """List events, newest first, without their payloads; for a publisher, its own. A page may have fewer than `limit`
    and still a `next_cursor`."""
    return await call.watch.events.page(call.actor, EventFilter.parse(call.filters(EVENT_FILTERS)), **call.paging())


@spec(DETAIL, query=PAGED)
async def show(call: Call) -> EventDetail:
    """Show one event and the notifications that resulted from it, a page of them in the order of their ids. Operators,
    administrators and the event's publisher see its payload."""
    return await call.watch.events.detail(call.actor, call.path("event_id"), **call.paging())


async def _publish(call: Call, source: str, given: list[Event | EventVerdict], size: int) -> list[EventVerdict]:
    allowances = call.backend.allowances
    allowances.check(source, LinkKind.DATA)
    allowances.charge(source, LinkKind.DATA, items=len(given), bytes=size)
    return await call.backend.ingest.publisher.publish(source, given)


def _split(data: bytes) -> _Events | None:
    """The batch with its events still encoded; None if the body is one event."""
    fields = decode_strictly(data, dict[str, msgspec.Raw])
    return decode_strictly(data, _Events) if "events" in fields else None


def _read(data: bytes | msgspec.Raw, source: str) -> Event:
    new = decode_strictly(data, NewEvent)
    return check_event(
        event_id=new.event_id,
        topic=new.topic,
        source=source,
        payload=bytes(new.payload),
        action=new.action,
        resource=new.resource,
        attributes=new.attributes,
        occurred_at=new.occurred_at,
        correlation_id=new.correlation_id,
    )


def _read_or_reject(data: msgspec.Raw, source: str) -> Event | EventVerdict:
    try:
        return _read(data, source)
    except InvalidInput as error:
        return EventVerdict(_id_of(data), REJECTED, error.code, error.message)


def _id_of(data: msgspec.Raw) -> str:
    """The id of an event that is invalid otherwise, empty if it has none."""
    try:
        return truncate(decode_strictly(data, _EventId).event_id, 64)
    except InvalidInput:
        return ""


def _refusal(verdict: EventVerdict) -> Conflict | InvalidInput:
    if verdict.code == "event.conflict":
        return Conflict("event.conflict", verdict.error or "", field="event_id")
    return InvalidInput(verdict.code or "", verdict.error or "", field="topic")
