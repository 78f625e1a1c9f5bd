"""Routes: add, change and remove."""

from dataclasses import replace

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, commit, event_id, present, was_changed
from fieldpost.central.store.events import routes
from fieldpost.central.store.notifications import audit, lists
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.route import EventRoute, check_route
from fieldpost.core.ids import is_id
from fieldpost.core.lists import LISTS_TYPE

_SHOWN = ("name", "filter", "list_name", "to", "cooldown_s", "cooldown_by")


class RouteActions(Actions):
    """Actions on routes."""

    async def add(self, actor: Actor, route: EventRoute) -> EventRoute:
        """Add the route under a new id. Events published from now on take it."""
        route = replace(route, route_id=event_id(self._clock.now()), removed_at=None, version=1)
        extra = {"list": route.list_name, "to": route.to}
        entry = self._begin(actor, Role.ADMIN, "route.add", route.name[:64], extra)
        check_route(route)
        return await commit(self._store, f"route {route.name!r}", _add, route, entry)

    async def change(self, actor: Actor, route: EventRoute) -> EventRoute:
        """Replace all of the route but its id, if it is still at `route.version`."""
        entry = self._begin(actor, Role.ADMIN, "route.change", route.name[:64])
        check_route(route)
        return await commit(self._store, f"route {route.name!r}", _change, route, entry)

    async def remove(self, actor: Actor, route_id: str, seen: int) -> EventRoute:
        """Remove the route: events published from now on do not take it. Its record stays for history."""
        entry = self._begin(actor, Role.ADMIN, "route.remove", route_id[:64])
        found = present(await self._store.read(routes.get, route_id) if is_id(route_id) else None, "route", route_id)
        removed = replace(found, removed_at=entry.occurred_at, version=seen)
        return await commit(self._store, f"route {found.name!r}", _remove, removed, replace(entry, target=found.name))


def _add(conn: Connection, route: EventRoute, entry: AuditEntry) -> EventRoute:
    _check_free(conn, route)
    _check_list(conn, route)
    routes.add(conn, route, entry.occurred_at)
    audit.add(conn, [entry])
    return route


def _change(conn: Connection, wanted: EventRoute, entry: AuditEntry) -> EventRoute:
    found = present(routes.get(conn, wanted.route_id), "route", wanted.route_id)
    _check_free(conn, wanted)
    _check_list(conn, wanted)
    if not routes.change(conn, wanted, entry.occurred_at):
        raise was_changed("route", found.name, found.version)
    changed = [name for name in _SHOWN if getattr(found, name) != getattr(wanted, name)]
    audit.add(conn, [replace(entry, extra={**(entry.extra or {}), "changed": changed})])
    return replace(wanted, version=wanted.version + 1)


def _remove(conn: Connection, removed: EventRoute, entry: AuditEntry) -> EventRoute:
    if not routes.change(conn, removed, entry.occurred_at):
        found = present(routes.get(conn, removed.route_id), "route", removed.route_id)
        raise was_changed("route", found.name, found.version)
    audit.add(conn, [entry])
    return replace(removed, version=removed.version + 1)


def _check_free(conn: Connection, route: EventRoute) -> None:
    other = routes.named(conn, route.name)
    if other is not None and other.route_id != route.route_id:
        raise Conflict("route.exists", f"route {route.name!r} already exists", hint="choose another name")


def _check_list(conn: Connection, route: EventRoute) -> None:
    found = lists.get_list(conn, route.list_name)
    if found is None:
        raise InvalidInput("route.list", f"list {route.list_name!r} does not exist", field="list_name")
    if route.to is not None and found.type == LISTS_TYPE:
        raise InvalidInput(
            "route.lists",
            f"list {route.list_name!r} is a list of lists, so `to` must not be set",
            hint="choose a list of the type of the address",
            field="to",
        )
    if route.to is None and not found.targets:
        raise InvalidInput(
            "route.no_targets",
            f"list {route.list_name!r} has no targets",
            hint="add targets to it, or set `to` to the payload member that holds the address",
            field="list_name",
        )
