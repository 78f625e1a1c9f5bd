"""Templates: the list, and the editor of one with preview and versions."""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from starlette.responses import Response

from fieldpost.central.operate.templates import TemplatePreview
from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, FieldpostError, InvalidInput, NotFound
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.events.template import Template
from fieldpost.core.quantities import number
from fieldpost.core.search.event_filter import EventFilter
from fieldpost.core.times import to_text
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.request import (
    EMPTY_FORM,
    MenuLine,
    PageRequest,
    PageRoute,
    SubmittedForm,
    error_text,
    field_errors,
    redirect,
)

PATH = "/templates"
EVENTS_SHOWN = 10
NOTICES = {"saved": "Template saved.", "removed": "Template removed. Events that need it wait."}


async def page(request: PageRequest) -> Response:
    overview = await request.watch.templates.all()
    known = {(one.topic, one.type) for one in overview.templates} | {(one.topic, "") for one in overview.templates}
    missing = [one for one in overview.waiting if not {(one.topic, one.type), (one.topic, "")} & known]
    topics = [one.name for one in await request.watch.events.topics() if one.archived_at is None]
    return request.page(
        "templates.html",
        templates=overview.templates,
        missing=missing,
        topics=topics,
        path_of=path_of,
        notice=request.notice(NOTICES),
    )


async def edit(request: PageRequest) -> Response:
    if request.http.query_params.get("confirm") == "remove":
        current = await _current(request)
        return request.confirm(
            title=f"Remove the template of {request.path('topic')}?",
            text="Events that need it wait until there is a template again. Its versions stay.",
            action=f"{PATH}/{quote(request.path('topic'), safe='')}/remove",
            button="Remove",
            back=path_of(request.path("topic"), _type(request)),
            hidden={"version": current.version if current else 0, "type": _type(request)},
            role=Role.ADMIN,
        )
    return await _form(request)


async def save(request: PageRequest) -> Response:
    form, topic = await request.form(), request.path("topic")
    if form.get("do") == "preview":
        return await _preview(request, topic, form)
    seen = form.get("version", "")
    try:
        saved = await request.operate.templates.save(
            request.actor, _template(topic, form), int(seen) if seen.isdecimal() else None
        )
    except InvalidInput as error:
        return await _form(request, SubmittedForm(form, field_errors(error)))
    except Conflict as error:
        return await _form(request, SubmittedForm.rejected(form, error, status=409))
    waited = f"&waited={saved.waiting}" if saved.waiting else ""
    return redirect(f"{path_of(topic, saved.template.type)}{waited}", "saved")


async def _preview(request: PageRequest, topic: str, form: Mapping[str, str]) -> Response:
    """The editor with the rendered text; nothing is saved."""
    try:
        shown = await request.operate.templates.preview(_template(topic, form), form.get("event_id") or None)
    except InvalidInput as error:
        return await _form(request, SubmittedForm(form, field_errors(error)))
    except FieldpostError as error:
        return await _form(request, SubmittedForm(form, {"": error_text(error)}))
    return await _form(request, SubmittedForm(form, {}, 200), shown)


async def remove(request: PageRequest) -> Response:
    form = await request.form()
    version = form.get("version", "")
    await request.operate.templates.remove(
        request.actor, request.path("topic"), form.get("type", ""), int(version) if version.isdecimal() else 0
    )
    return redirect(PATH, "removed")


def path_of(topic: str, type_: str = "") -> str:
    return f"{PATH}/{quote(topic, safe='')}?{urlencode({'type': type_})}"


def _type(request: PageRequest) -> str:
    return request.http.query_params.get("type", "")


def _template(topic: str, form: Mapping[str, str]) -> Template:
    body = form.get("body", "").replace("\r\n", "\n")
    return Template(
        topic=topic,
        type=form.get("type", ""),
        subject=form.get("subject", "").strip(),
        body=body,
        severity=form.get("severity", "").strip(),
        incident=form.get("incident", "").strip(),
        is_cleared=form.get("is_cleared", "").strip(),
    )


async def _current(request: PageRequest, type_: str | None = None) -> Template | None:
    wanted = (request.path("topic"), _type(request) if type_ is None else type_)
    overview = await request.watch.templates.all()
    return next((one for one in overview.templates if (one.topic, one.type) == wanted), None)


async def _form(
    request: PageRequest, form: SubmittedForm = EMPTY_FORM, shown: TemplatePreview | None = None
) -> Response:
    topic_name = request.path("topic")
    type_ = form.given.get("type", _type(request))
    current = await _current(request, type_)
    try:
        versions = await request.watch.templates.versions(topic_name, type_)
    except NotFound:
        versions = []
    chosen = request.http.query_params.get("version", "")
    based_on = next((one for one in versions if str(one.version) == chosen), current)
    try:
        topic = await request.watch.events.topic(topic_name)
    except NotFound:
        topic = None
    recent = await request.watch.events.page(request.actor, EventFilter(topic=topic_name), limit=EVENTS_SHOWN)
    overview = await request.watch.templates.all()
    waiting = [one for one in overview.waiting if one.topic == topic_name and type_ in ("", one.type)]
    waited = request.http.query_params.get("waited", "")
    notice = request.notice(NOTICES)
    if notice and waited.isdecimal() and len(waited) < 10:
        count = int(waited)
        events = "waiting event gets its" if count == 1 else "waiting events get their"
        notice += f" {number(count)} {events} notifications now."
    return request.page(
        "template.html",
        form,
        topic=topic,
        topic_name=topic_name,
        type=type_,
        types=[
            ("", "all list types without their own"),
            *((t, f"lists of type {t}") for t in request.operate.templates.types),
        ],
        current=current,
        based_on=based_on,
        versions=versions,
        events=[("", "the example of the topic"), *((one.event.event_id, _named(one)) for one in recent.events)],
        waiting=waiting,
        shown=shown,
        path_of=path_of,
        own_path=f"{PATH}/{quote(topic_name, safe='')}",
        notice=notice,
    )


def _named(recorded: RecordedEvent) -> str:
    event = recorded.event
    return f"{to_text(recorded.created_at)[:19]}Z {event.resource or event.source}"[:100]


MENU = MenuLine("Templates", PATH, "Set up", "p")
ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("GET", PATH + "/{topic}", edit, Access.VIEWER),
    PageRoute("POST", PATH + "/{topic}/remove", remove, Access.ADMIN),
    PageRoute("POST", PATH + "/{topic}", save, Access.ADMIN),
)
