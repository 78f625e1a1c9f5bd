"""`/routes`: which events become notifications to which list."""

from collections.abc import Mapping, Sequence

import msgspec

from fieldpost.central.watch.events.routes import RouteDetail, RouteState, RouteTrial
from fieldpost.core.events.event import Event, check_event
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import Cooldown, EventRoute
from fieldpost.front.api.events.events import JsonPayload
from fieldpost.front.api.events.subscriptions import ENTRY, NewFilterEntry, filter_entries
from fieldpost.front.api.notifications import SeenVersion
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField, listing, within

TRIAL_ID = "00000000-0000-7000-8000-000000000000"
"""The id of an event that is only matched."""


class NewRoute(Body, frozen=True, kw_only=True):
    """All of a route but its id."""

    name: str
    filter: list[NewFilterEntry]
    """An event takes the route if one entry accepts it."""
    list_name: str
    to: str | None = None
    """The payload member that holds the address (`email`, `user.email`). Then only this address is notified, by the
    list's channel and policies; the list's own targets are not."""
    cooldown_s: float | None = None
    """After a notification, events within this time are suppressed and counted."""
    cooldown_by: str | None = None
    """The attribute whose values have separate cooldowns."""


class ChangedRoute(NewRoute, frozen=True, kw_only=True):
    """The whole route as it is to be."""

    version: RowVersion


class TriedEvent(Body, frozen=True, kw_only=True):
    """An event as it would be published."""

    topic: str
    payload: JsonPayload = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    action: str | None = None
    resource: str | None = None
    attributes: Mapping[str, str] = {}


ROUTE = View(
    "RouteView",
    RouteState,
    within("route", "route_id name"),
    ViewField("filter", "route.filter", view=ENTRY),
    within("route", "list_name to cooldown_s cooldown_by"),
    "list_type suppressed without_template",
    within("route", "removed_at version"),
    description="`list_type` is null if the list does not exist. `suppressed` counts events since the route's cooldowns"
    " let one pass. `without_template` names topics that the route matches and that have no template for the list's"
    " type; their events wait.",
)
ROUTES = listing("RoutesView", "routes", ROUTE)
COOLDOWN = View("CooldownView", Cooldown, "value until suppressed last_suppressed_at")
DETAIL = View(
    "RouteDetailView",
    RouteDetail,
    ViewField("route", "state", view=ROUTE),
    ViewField("cooldowns", view=COOLDOWN),
    "as_of",
    description="A route with the values whose cooldown runs or has suppressed events.",
)
TRIAL = View(
    "RouteTrialView",
    RouteTrial,
    within("route", "route_id name list_name"),
    "list_type address template_version",
    description="A route that an event would take. `address` is the one in the payload, for a route with `to`;"
    " `template_version` is null if there is no template, so that the event would wait.",
)
TRIALS = listing("RouteTrialsView", "routes", TRIAL)


@spec(ROUTES)
async def show_all(call: Call) -> Sequence[RouteState]:
    """List all routes by name."""
    return await call.watch.routes.all()


@spec(DETAIL)
async def show(call: Call) -> RouteDetail:
    """Show one route, removed or not, with its cooldowns."""
    return await call.watch.routes.one(call.path("route_id"))


@spec(DETAIL, 201, body=NewRoute, problems=(409,))
async def add(call: Call) -> RouteDetail:
    """Add a route. Events published from now on take it."""
    added = await call.operate.routes.add(call.actor, _route(await call.read(NewRoute), "", 1))
    return await call.watch.routes.one(added.route_id)


@spec(DETAIL, body=ChangedRoute, problems=(409,))
async def change(call: Call) -> RouteDetail:
    """Replace all of a route at the `version` that the caller has seen."""
    given = await call.read(ChangedRoute)
    changed = await call.operate.routes.change(call.actor, _route(given, call.path("route_id"), given.version))
    return await call.watch.routes.one(changed.route_id)


@spec(DETAIL, body=SeenVersion, problems=(409,))
async def remove(call: Call) -> RouteDetail:
    """Remove a route: new events do not take it. Its record stays for history."""
    seen = await call.read(SeenVersion)
    removed = await call.operate.routes.remove(call.actor, call.path("route_id"), seen.version)
    return await call.watch.routes.one(removed.route_id)


@spec(TRIALS, body=TriedEvent)
async def match(call: Call) -> Sequence[RouteTrial]:
    """List the routes that an event would take. Nothing is recorded, and cooldowns are not considered."""
    return await call.watch.routes.match(tried_event(await call.read(TriedEvent), call.actor.source))


def tried_event(given: TriedEvent, source: str) -> Event:
    return check_event(
        event_id=TRIAL_ID,
        topic=given.topic,
        source=source,
        payload=bytes(given.payload),
        action=given.action,
        resource=given.resource,
        attributes=given.attributes,
    )


def _route(given: NewRoute, route_id: str, version: int) -> EventRoute:
    entries: list[FilterEntry] = filter_entries(given.filter)
    return EventRoute(
        route_id=route_id,
        name=given.name,
        filter=tuple(entries),
        list_name=given.list_name,
        to=given.to,
        cooldown_s=given.cooldown_s,
        cooldown_by=given.cooldown_by,
        version=version,
    )
