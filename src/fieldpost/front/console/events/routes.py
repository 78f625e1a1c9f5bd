"""Routes: from events to lists; and which lists would receive an event."""

from collections.abc import Mapping

from starlette.responses import Response

from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.event import check_event
from fieldpost.core.events.filter import entry_text, parse_entry
from fieldpost.core.events.route import EventRoute
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.forms import version_of
from fieldpost.front.console.kit.request import (
    EMPTY_FORM,
    MenuLine,
    PageRequest,
    PageRoute,
    SubmittedForm,
    field_errors,
    redirect,
)

PATH = "/routes"
NEW_PATH = "/new/route"
TRY_PATH = "/try-routes"
TRIAL_ID = "00000000-0000-7000-8000-000000000000"
NOTICES = {
    "added": "Route added. Events published from now on take it.",
    "changed": "Route saved.",
    "removed": "Route removed. New events do not take it.",
}


async def page(request: PageRequest) -> Response:
    routes = await request.watch.routes.all()
    return request.page("routes.html", routes=routes, entry_text=entry_text, notice=request.notice(NOTICES))


async def one(request: PageRequest) -> Response:
    detail = await request.watch.routes.one(request.path("route_id"))
    route = detail.state.route
    if request.http.query_params.get("confirm") == "remove":
        return request.confirm(
            title=f"Remove the route {route.name}?",
            text="New events do not take it. Notifications that it made are still delivered.",
            action=f"{PATH}/{route.route_id}/remove",
            button="Remove",
            back=f"{PATH}/{route.route_id}",
            hidden={"version": route.version},
            role=Role.ADMIN,
        )
    return await _form(request, route)


async def new(request: PageRequest) -> Response:
    return await _form(request, None)


async def add(request: PageRequest) -> Response:
    form = await request.form()
    try:
        added = await request.operate.routes.add(request.actor, _route(form, "", 1))
    except InvalidInput as error:
        return await _form(request, None, SubmittedForm(form, _errors(error)))
    except Conflict as error:
        return await _form(request, None, SubmittedForm.rejected(form, error, at="name", status=409))
    return redirect(f"{PATH}/{added.route_id}", "added")


async def change(request: PageRequest) -> Response:
    form, route_id = await request.form(), request.path("route_id")
    found = (await request.watch.routes.one(route_id)).state.route
    try:
        await request.operate.routes.change(request.actor, _route(form, route_id, version_of(form)))
    except InvalidInput as error:
        return await _form(request, found, SubmittedForm(form, _errors(error)))
    except Conflict as error:
        return await _form(request, found, SubmittedForm.rejected(form, error, status=409))
    return redirect(f"{PATH}/{route_id}", "changed")


async def remove(request: PageRequest) -> Response:
    form = await request.form()
    await request.operate.routes.remove(request.actor, request.path("route_id"), version_of(form))
    return redirect(PATH, "removed")


async def try_event(request: PageRequest) -> Response:
    """Which lists would receive this event? A query, so that its address can be shared."""
    given = {name: request.http.query_params.get(name, "") for name in ("topic", "payload", "attributes")}
    names = [topic.name for topic in await request.watch.events.topics() if topic.archived_at is None]
    if not given["topic"]:
        return request.page("try_routes.html", topics=names, found=None)
    try:
        event = check_event(
            event_id=TRIAL_ID,
            topic=given["topic"].strip(),
            source=request.actor.source,
            payload=(given["payload"].strip() or "{}").encode(),
            attributes=_attributes(given["attributes"]),
        )
        found = await request.watch.routes.match(event)
    except InvalidInput as error:
        form = SubmittedForm(given, field_errors(error))
        return request.page("try_routes.html", form, topics=names, found=None)
    form = SubmittedForm(given, {}, 200)
    return request.page("try_routes.html", form, topics=names, found=found)


def _attributes(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        return dict(parse_entry(text, "attributes").attributes)
    except InvalidInput as error:
        raise InvalidInput(error.code, error.message, field="attributes") from None


def _route(form: Mapping[str, str], route_id: str, version: int) -> EventRoute:
    lines = enumerate(form.get("filter", "").splitlines(), 1)
    return EventRoute(
        route_id=route_id,
        name=form.get("name", "").strip(),
        filter=tuple(parse_entry(line, f"line {number}") for number, line in lines if line.strip()),
        list_name=form.get("list_name", "").strip(),
        to=form.get("to", "").strip() or None,
        cooldown_s=_seconds(form.get("cooldown_s", "").strip()),
        cooldown_by=form.get("cooldown_by", "").strip() or None,
        version=version,
    )


def _seconds(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidInput("route.cooldown", "the cooldown must be a number of seconds", field="cooldown_s") from None


def _errors(error: InvalidInput) -> dict[str, str]:
    errors = field_errors(error)
    name, text = next(iter(errors.items()))
    return {"filter": text} if name.startswith("filter") else errors


async def _form(request: PageRequest, route: EventRoute | None, form: SubmittedForm = EMPTY_FORM) -> Response:
    detail = await request.watch.routes.one(route.route_id) if route else None
    shown = detail.state.route if detail else None
    return request.page(
        "route.html" if route else "new_route.html",
        form,
        detail=detail,
        route=shown,
        values=_shown(shown) if shown else {},
        lists=sorted(one.name for one in await request.operate.lists.all()),
        own_path=f"{PATH}/{route.route_id}" if route else PATH,
        notice=request.notice(NOTICES),
    )


def _shown(route: EventRoute) -> dict[str, str]:
    return {
        "name": route.name,
        "filter": "\n".join(entry_text(entry) for entry in route.filter),
        "list_name": route.list_name,
        "to": route.to or "",
        "cooldown_s": f"{route.cooldown_s:g}" if route.cooldown_s else "",
        "cooldown_by": route.cooldown_by or "",
    }


MENU = MenuLine("Routes", PATH, "Set up", "r", also=(NEW_PATH, TRY_PATH))
ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", NEW_PATH, new, Access.ADMIN),
    PageRoute("GET", TRY_PATH, try_event, Access.VIEWER),
    PageRoute("POST", PATH + "/{route_id}/change", change, Access.ADMIN),
    PageRoute("POST", PATH + "/{route_id}/remove", remove, Access.ADMIN),
    PageRoute("GET", PATH + "/{route_id}", one, Access.VIEWER),
)
