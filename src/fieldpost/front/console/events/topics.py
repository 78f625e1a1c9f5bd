"""Topics: the catalogue of event kinds, the page of one topic, its form and its archive."""

from collections.abc import Mapping
from urllib.parse import quote

from starlette.responses import Response

from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.topic import Topic
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

PATH = "/topics"
NEW_PATH = "/new/topic"
NOTICES = {
    "added": "Topic added. Applications can publish events on it from now on.",
    "changed": "Topic saved.",
    "archived": "Topic archived. New events on it are rejected.",
    "reopened": "Topic reopened.",
}


async def page(request: PageRequest) -> Response:
    topics = await request.watch.events.topics(request.actor.owner_limit)
    topics.sort(key=lambda topic: (topic.archived_at is not None, topic.name))
    return request.page("topics.html", topics=topics, path_of=path_of, notice=request.notice(NOTICES))


async def one(request: PageRequest) -> Response:
    topic = await request.watch.events.topic(request.path("name"), request.actor.owner_limit)
    if request.http.query_params.get("confirm") == "archive":
        return request.confirm(
            title=f"Archive the topic {topic.name}?",
            text="Its events stay. New events on it are rejected until it is reopened.",
            action=f"{path_of(topic.name)}/archive",
            button="Archive",
            back=path_of(topic.name),
            hidden={"version": topic.version},
            role=Role.ADMIN,
        )
    return _form(request, topic)


async def new(request: PageRequest) -> Response:
    return _form(request, None)


async def add(request: PageRequest) -> Response:
    form = await request.form()
    try:
        added = await request.operate.topics.save(request.actor, _topic(form.get("name", "").strip(), form), None)
    except InvalidInput as error:
        return _form(request, None, SubmittedForm(form, field_errors(error)))
    except Conflict as error:
        return _form(request, None, SubmittedForm.rejected(form, error, at="name", status=409))
    return redirect(path_of(added.name), "added")


async def change(request: PageRequest) -> Response:
    form, name = await request.form(), request.path("name")
    found = await request.watch.events.topic(name)
    is_archived = found.archived_at is not None and form.get("reopen") != "true"
    try:
        await request.operate.topics.save(request.actor, _topic(name, form), version_of(form), is_archived=is_archived)
    except InvalidInput as error:
        return _form(request, found, SubmittedForm(form, field_errors(error)))
    except Conflict as error:
        return _form(request, found, SubmittedForm.rejected(form, error, status=409))
    return redirect(path_of(name), "reopened" if form.get("reopen") == "true" else "changed")


async def archive(request: PageRequest) -> Response:
    form, name = await request.form(), request.path("name")
    await request.operate.topics.archive(request.actor, name, version_of(form))
    return redirect(path_of(name), "archived")


def path_of(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


def _topic(name: str, form: Mapping[str, str]) -> Topic:
    return Topic(
        name=name,
        description=form.get("description", "").strip(),
        attributes=words(form.get("attributes", "")),
        schema=form.get("schema", "").strip() or None,
        example=form.get("example", "").strip() or None,
        owners=words(form.get("owners", "")),
    )


def words(text: str) -> tuple[str, ...]:
    """Names, one per line or separated by commas."""
    return tuple(
        dict.fromkeys(word for line in text.splitlines() for part in line.split(",") if (word := part.strip()))
    )


def _form(request: PageRequest, topic: Topic | None, form: SubmittedForm = EMPTY_FORM) -> Response:
    return request.page(
        "topic.html" if topic else "new_topic.html",
        form,
        topic=topic,
        own_path=path_of(topic.name) if topic else PATH,
        notice=request.notice(NOTICES),
    )


MENU = MenuLine("Topics", PATH, "Set up", "o", Access.OWNER_READ, also=(NEW_PATH,))
ROUTES = (
    PageRoute("GET", PATH, page, Access.OWNER_READ),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", NEW_PATH, new, Access.ADMIN),
    PageRoute("POST", PATH + "/{name}/change", change, Access.ADMIN),
    PageRoute("POST", PATH + "/{name}/archive", archive, Access.ADMIN),
    PageRoute("GET", PATH + "/{name}", one, Access.OWNER_READ),
)
