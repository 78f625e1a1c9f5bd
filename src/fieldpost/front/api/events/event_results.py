"""`/event-results` and `/outboxes`: applications follow their events, and relays report their outboxes."""

from collections.abc import Sequence

from fieldpost.central.watch.events.event_results import (
    EndedNotification,
    EventResult,
    EventResults,
    OutboxReport,
    TargetResult,
)
from fieldpost.core.search.filters import parse_moment
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.link.http.body import Body
from fieldpost.link.http.endpoint_spec import MOMENT, PAGED, Parameter, spec
from fieldpost.link.http.view import View, ViewField, listing


class EventIds(Body, frozen=True):
    """Up to 500 ids of events."""

    event_ids: list[str]


class OutboxState(Body, frozen=True):
    """The rows of an outbox that are neither sent nor failed for good."""

    open_count: int
    oldest_age_s: float = 0.0
    """How long ago the oldest of them was written."""


RESULT = View(
    "EventResultView",
    EventResult,
    "event_id state",
    description="`failed` if a notification is parked or discarded, `template_not_found`, `processing`, or `sent`;"
    " `purged` after the retention, `unknown` if this caller published no such event.",
)
TARGET = View("TargetResultView", TargetResult, "address status cycle settled_at error")
ENDED = View(
    "EndedNotificationView",
    EndedNotification,
    "notification_id event_id list_name type subject status cycle ended_at error",
    ViewField("targets", view=TARGET),
    description="A notification that is delivered, parked or discarded. `list_name` is the list or subscription.",
)
RESULTS = View(
    "EventResultsView",
    EventResults,
    ViewField("events", view=RESULT),
    ViewField("notifications", view=ENDED),
    "next_cursor as_of",
)
OUTBOX = View(
    "OutboxReportView",
    OutboxReport,
    "source open_count oldest_at reported_at",
    description="An application's outbox, as its relay last reported it.",
)
OUTBOXES = listing("OutboxReportsView", "outboxes", OUTBOX)


@spec(
    RESULTS,
    query=(Parameter("ended_since", MOMENT, "Notifications that ended then or later", is_required=True), *PAGED),
)
async def since(call: Call) -> EventResults:
    """List notifications of the caller's own events that ended, oldest first, with the present states of their events.
    Repeat the query from the last `as_of` with an overlap of some seconds: a notification becomes visible shortly after
    the time at which it ended."""
    ended_since = parse_moment(call.parameter("ended_since", ""), "ended_since")
    return await call.watch.event_results.since(call.actor.source, ended_since, **call.paging())


@spec(RESULTS, query=PAGED, body=EventIds)
async def of(call: Call) -> EventResults:
    """Return the states of up to 500 of the caller's own events by id, and a page of their notifications that ended."""
    ids = (await call.read(EventIds)).event_ids
    return await call.watch.event_results.of(call.actor.source, ids, **call.paging())


@spec(status=204, body=OutboxState)
async def report(call: Call) -> ApiAnswer:
    """Report how many rows of the caller's outbox are open. A relay does so once a minute and with every batch; Health
    shows an outbox with open rows whose relay is silent."""
    state = await call.read(OutboxState)
    await call.backend.ingest.publisher.save_report(call.actor.source, state.open_count, state.oldest_age_s)
    return ApiAnswer()


@spec(OUTBOXES)
async def outboxes(call: Call) -> Sequence[OutboxReport]:
    """List the outboxes of applications, as their relays last reported them."""
    return await call.watch.event_results.outboxes()
