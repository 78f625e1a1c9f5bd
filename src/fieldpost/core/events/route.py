"""Routes: which events become notifications to which list.

A route has a filter, in the language of subscriptions, and the name of a list. With `to` it notifies the person that
the event is about: the address is read from the payload, and the list supplies channel and policies only. With a
cooldown it notifies once per value of an attribute and period; further events are recorded and counted as suppressed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.audience import RESERVED
from fieldpost.core.events.event import Event, derived_notification_id
from fieldpost.core.events.filter import SubscriptionFilter, check_filter, filter_matches, fits_text
from fieldpost.core.events.members import address_of, check_member
from fieldpost.core.events.topic import Topic, check_attribute_name
from fieldpost.core.text import check_label, check_list_name

COOLDOWN_S_MAX = 30 * 86400.0
NO_VALUE = ""
"""Events without the attribute of a cooldown share one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRoute:
    """A stored route."""

    route_id: str
    name: str
    filter: SubscriptionFilter
    list_name: str
    to: str | None = None
    """The payload member that holds the address; then the list's own targets are not notified."""
    cooldown_s: float | None = None
    cooldown_by: str | None = None
    """The attribute whose values have separate cooldowns; None for one cooldown of the whole route."""
    removed_at: datetime | None = None
    version: int = 1


@dataclass(frozen=True, slots=True)
class Cooldown:
    """The state of one value of a route's cooldown attribute."""

    route_id: str
    value: str
    until: datetime
    """Events before this time are suppressed."""
    suppressed: int = 0
    """How many were since the route notified last."""
    last_suppressed_at: datetime | None = None


def check_route(route: EventRoute) -> EventRoute:
    """The route as given, or InvalidInput naming the field and the rule."""
    check_label(route.name, "name")
    check_filter(route.filter)
    check_list_name(route.list_name)
    if route.to is not None:
        check_member(route.to, "to")
    if route.cooldown_s is None and route.cooldown_by is not None:
        raise InvalidInput(
            "route.cooldown", "cooldown_by needs a cooldown", hint="give cooldown_s too", field="cooldown_by"
        )
    if route.cooldown_s is not None and not 1 <= route.cooldown_s <= COOLDOWN_S_MAX:
        raise InvalidInput(
            "route.cooldown", "cooldown_s must be between 1 second and 30 days, or null", field="cooldown_s"
        )
    if route.cooldown_by is not None:
        check_attribute_name(route.cooldown_by, "cooldown_by")
    return route


def may_route(route: EventRoute, event: Event) -> bool:
    """Whether a route whose filter matches gets the event. Notices go only to routes that name their topic."""
    if not event.topic.startswith(RESERVED):
        return True
    return filter_matches(tuple(one for one in route.filter if one.topic.startswith(RESERVED)), event)


def topics_of(route: EventRoute, topics: Iterable[Topic]) -> list[str]:
    """The open topics that the route's filter names or whose names fit it."""
    open_names = {topic.name for topic in topics if topic.archived_at is None}
    return sorted(name for name in open_names if any(fits_text(entry.topic, name) for entry in route.filter))


def routed_id(event_id: str, list_name: str, address: str | None) -> str:
    """The id of the notification that an event causes for a list, or for one address by way of the list.

    Two routes that send an event to the same list or address cause one notification.
    """
    return derived_notification_id(event_id, "list", list_name, address or "")


def published_address(event: Event, route: EventRoute) -> str | None:
    """The address in the payload as it was published, valid or not; None if there is none."""
    try:
        return address_of(event.payload, route.to) if route.to is not None else None
    except InvalidInput:
        return None


def cooldown_value(route: EventRoute, event: Event) -> str:
    """The value that selects the event's cooldown; values compare case-insensitively, as in filters."""
    return event.attributes.get(route.cooldown_by, NO_VALUE).casefold() if route.cooldown_by else NO_VALUE


def pass_cooldown(state: Cooldown | None, route: EventRoute, value: str, now: datetime) -> tuple[bool, Cooldown]:
    """Whether an event at this time notifies, and the state after it."""
    if state is not None and now < state.until:
        return False, Cooldown(route.route_id, value, state.until, state.suppressed + 1, now)
    until = now + timedelta(seconds=route.cooldown_s or 0)
    return True, Cooldown(route.route_id, value, until)
