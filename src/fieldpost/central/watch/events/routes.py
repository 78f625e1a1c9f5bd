"""Queries of routes: with their lists and suppressed events, and which of them an event would take."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import routes, templates, topics
from fieldpost.core.errors import NotFound
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import filter_matches
from fieldpost.core.events.members import with_payload_attributes
from fieldpost.core.events.route import Cooldown, EventRoute, may_route, published_address, topics_of
from fieldpost.core.events.template import Template, template_for
from fieldpost.core.ids import is_id
from fieldpost.core.lists import UNRESOLVED_TYPE

COOLDOWNS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class RouteState:
    """A route with its present effect."""

    route: EventRoute
    list_type: str | None
    """None if the list does not exist."""
    suppressed: int
    """Events that its cooldowns suppressed since they notified last."""
    without_template: tuple[str, ...]
    """Topics that it matches and that have no template for the list's type."""


@dataclass(frozen=True, slots=True)
class RouteDetail:
    """A route with the values whose cooldown runs or suppressed events, most suppressed first."""

    state: RouteState
    cooldowns: tuple[Cooldown, ...]
    as_of: datetime


@dataclass(frozen=True, slots=True)
class RouteTrial:
    """A route that an event would take; one to a list of lists appears once per type of the lists that it names."""

    route: EventRoute
    list_type: str | None
    address: str | None
    """The address in the payload, for a route with `to`; not checked."""
    template_version: int | None
    """None if there is no template: the event would wait."""


class RouteReader:
    """Reads routes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[RouteState]:
        """The routes by name."""
        return await self._store.read(_all)

    async def one(self, route_id: str) -> RouteDetail:
        """The route of this id, removed or not. Raises NotFound."""
        found = await self._store.read(_one, route_id, now=self._store.now()) if is_id(route_id) else None
        if found is None:
            raise NotFound("route.unknown", f"route {route_id[:64]!r} does not exist")
        return found

    async def match(self, event: Event) -> list[RouteTrial]:
        """The routes that this event would take, by name; nothing is recorded. Cooldowns are not considered."""
        return await self._store.read(_match, event)


def _all(conn: Connection) -> list[RouteState]:
    found = routes.active(conn)
    return _states(conn, found)


def _one(conn: Connection, route_id: str, *, now: datetime | None) -> RouteDetail | None:
    route = routes.get(conn, route_id)
    if route is None:
        return None
    as_of = database_time(conn, now)
    cooldowns = routes.running_cooldowns(conn, route_id, as_of, COOLDOWNS_SHOWN)
    return RouteDetail(_states(conn, [route])[0], tuple(cooldowns), as_of)


def _states(conn: Connection, found: Sequence[EventRoute]) -> list[RouteState]:
    names = {route.list_name for route in found}
    types, needed = routes.list_types(conn, names), routes.types_needed(conn, names)
    known, current, suppressed = topics.all_topics(conn), templates.current(conn), routes.suppressed_counts(conn)
    return [
        RouteState(
            route,
            types.get(route.list_name),
            suppressed.get(route.route_id, 0),
            tuple(
                name
                for name in topics_of(route, known)
                if any(template_for(current, name, type_) is None for type_ in needed[route.list_name])
            ),
        )
        for route in found
    ]


def _match(conn: Connection, published: Event) -> list[RouteTrial]:
    event = with_payload_attributes(published, topics.get(conn, published.topic))
    taken = [one for one in routes.active(conn) if filter_matches(one.filter, event) and may_route(one, event)]
    types, current = routes.types_needed(conn, {one.list_name for one in taken}), templates.current(conn)
    return [
        _trial(route, None if type_ == UNRESOLVED_TYPE else type_, event, current)
        for route in taken
        for type_ in types[route.list_name]
    ]


def _trial(route: EventRoute, type_: str | None, event: Event, current: dict[tuple[str, str], Template]) -> RouteTrial:
    template = template_for(current, event.topic, type_ or "")
    return RouteTrial(route, type_, published_address(event, route), template.version if template else None)
