"""Routes at publishing: which notifications the routes of new events make, and which events they withhold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.ingest.catalogue import RouteMatch
from fieldpost.central.rendering.composer import Composed, Composer, Composition
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.events import routed, routes, withheld
from fieldpost.central.store.events.routed import RoutedNotification
from fieldpost.central.store.events.withheld import WithheldReason
from fieldpost.core.events.event import Event
from fieldpost.core.events.route import cooldown_value, pass_cooldown, published_address, routed_id
from fieldpost.core.notification import Status
from fieldpost.core.wholes import part_id


@dataclass(frozen=True, slots=True)
class RoutedEvent:
    """An event on its way to a list: with a notification, or without one for lack of a template."""

    event: Event
    match: RouteMatch
    notification: RoutedNotification | None


@dataclass(slots=True)
class RoutedResult:
    """The result of an event's routes: how many notifications it has by status, and whether a template is missing."""

    counts: Counter[Status] = field(default_factory=Counter)
    lacks_template: bool = False


async def compose(composer: Composer, matched: Sequence[tuple[Event, RouteMatch]]) -> list[RoutedEvent]:
    """Render the notifications of these events; those without a template have none, or a draft if they are parts."""
    wanted = [
        Composition(event, match.route, match.type, match.template)
        for event, match in matched
        if match.template is not None
    ]
    composed = iter(await composer.compose(wanted) if wanted else ())
    return [
        draft(event, match)
        if match.template is None
        else RoutedEvent(event, match, _notification(event, match, next(composed)))
        for event, match in matched
    ]


def draft(event: Event, match: RouteMatch) -> RoutedEvent:
    """The same without rendering: the dispatcher renders the draft.

    The part of a list whose type has no template is a draft as well: its attempt parks it, naming the template, and a
    retry renders it.
    """
    if match.template is None and not match.is_part:
        return RoutedEvent(event, match, None)
    return RoutedEvent(event, match, _notification(event, match, Composed(None, is_ours=True)))


def record(conn: Connection, found: Sequence[RoutedEvent], *, now: datetime | None) -> dict[str, RoutedResult]:
    """Record the notifications of new events, except those that a cooldown suppresses, and the withheld events.

    Returns the results by event id.
    """
    held = [(one, WithheldReason.NO_TEMPLATE) for one in found if one.notification is None]
    made = [one for one in found if one.notification is not None]
    if any(one.match.route.cooldown_s for one in made):
        made, suppressed = _pass_cooldowns(conn, made, database_time(conn, now))
        held += [(one, WithheldReason.COOLDOWN) for one in suppressed]
    # Two routes may lead to the same list: one notification.
    notifications = {one.notification.notification_id: one.notification for one in reversed(made) if one.notification}
    routed.record(conn, list(notifications.values()))
    withheld.add(conn, [(one.event.event_id, one.match.route.route_id, one.match.type, reason) for one, reason in held])
    results = {one.event.event_id: RoutedResult() for one in found}
    for notification in notifications.values():
        results[notification.event_id].counts[Status.PARKED if notification.error else Status.PENDING] += 1
    for one, reason in held:
        results[one.event.event_id].lacks_template |= reason is WithheldReason.NO_TEMPLATE
    return results


def _pass_cooldowns(
    conn: Connection, found: Sequence[RoutedEvent], now: datetime
) -> tuple[list[RoutedEvent], list[RoutedEvent]]:
    """The events that notify, and those that are suppressed; in the order of the request."""
    keys = {
        (one.match.route.route_id, cooldown_value(one.match.route, one.event))
        for one in found
        if one.match.route.cooldown_s
    }
    states = routes.lock_cooldowns(conn, keys)
    decided: dict[tuple[str, str], bool] = {}
    passed: list[RoutedEvent] = []
    suppressed: list[RoutedEvent] = []
    for one in found:
        route, is_passed = one.match.route, True
        pair = one.event.event_id, route.route_id
        if pair in decided:  # another part of the same whole
            is_passed = decided[pair]
        elif route.cooldown_s:
            value = cooldown_value(route, one.event)
            key = route.route_id, value
            is_passed, states[key] = pass_cooldown(states.get(key), route, value, now)
            decided[pair] = is_passed
        (passed if is_passed else suppressed).append(one)
    routes.write_cooldowns(conn, list(states.values()))
    return passed, suppressed


def _notification(event: Event, match: RouteMatch, composed: Composed) -> RoutedNotification:
    route, template, text = match.route, match.template, composed.rendered
    whole_id = routed_id(event.event_id, route.list_name, published_address(event, route))
    return RoutedNotification(
        notification_id=part_id(whole_id, match.list_name) if match.is_part else whole_id,
        event_id=event.event_id,
        route_id=route.route_id,
        list_name=match.list_name,
        whole_id=whole_id if match.is_part else None,
        whole_list=route.list_name if match.is_part else None,
        subject=text.subject if text else "",
        body=text.body if text else "",
        address=composed.address if text else None,
        template_type=template.type if text and template else None,
        template_version=template.version if text and template else None,
        severity=text.severity.value if text and text.severity else None,
        incident=text.incident if text else None,
        is_cleared=text.is_cleared if text else False,
        error=None if composed.is_ours else composed.error,
    )
