"""Lists: table, form and removal."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.watch.channels import ChannelOverview
from fieldpost.central.watch.notifications import Counted
from fieldpost.core.actor import Role
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import Conflict, FieldpostError, InvalidInput
from fieldpost.core.lists import LISTS_TYPE, ListChange, NotificationList, compare
from fieldpost.core.notification import Severity
from fieldpost.core.quantities import number
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.forms import version_of
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

PATH = "/lists"
NEW_PATH = "/new/list"
FORM_BYTES_MAX = 2 * 1024 * 1024
"""Enough for the maximum number of targets, URL-encoded."""
NOTICES = {
    "added": "List added. Notifications to it are sent from now on.",
    "changed": "List saved. The change applies to notifications that have not been attempted yet.",
    "removed": "List removed.",
    "imported": "Lists imported.",
}
_TARGET = re.compile(r"targets\[(\d+)\]", re.ASCII)


async def page(request: PageRequest) -> Response:
    ways = await request.watch.channels.all()
    channel_of = {name: state.channel.name for state in ways.channels for name in state.lists}
    lists = await request.operate.lists.all()
    # Lists without a channel park everything, so they come first.
    lists.sort(key=lambda found: (found.name in channel_of or found.type == LISTS_TYPE, found.name))
    return request.page(
        "lists.html",
        lists=lists,
        channel_of=channel_of,
        blocked_lists=_blocked_lists(ways),
        path_of=path_of,
        as_of=ways.as_of,
        notice=request.notice(NOTICES),
    )


async def one(request: PageRequest) -> Response:
    found = await request.operate.lists.get(request.path("name"))
    if request.http.query_params.get("confirm") == "remove":
        return await _confirm_remove(request, found)
    return await _one(request, found)


async def new(request: PageRequest) -> Response:
    return await _form(request, None)


async def add(request: PageRequest) -> Response:
    form = await request.form(FORM_BYTES_MAX)
    targets = _lines(form.get("targets", ""))
    try:
        added = await request.operate.lists.add(
            request.actor,
            ListSpec(name=form.get("name", "").strip(), type=form.get("type", "email"), **_properties(form, targets)),
        )
    except InvalidInput as error:
        return await _form(request, None, SubmittedForm(_kept(form), _errors(error, targets)))
    except Conflict as error:
        return await _form(request, None, SubmittedForm.rejected(_kept(form), error, at="name", status=409))
    return redirect(path_of(added.name), "added")


async def change(request: PageRequest) -> Response:
    form = await request.form(FORM_BYTES_MAX)
    name, targets = request.path("name"), _lines(form.get("targets", ""))
    try:
        await request.operate.lists.change(request.actor, name, version_of(form), **_properties(form, targets))
    except InvalidInput as error:
        found = await request.operate.lists.get(name)
        return await _one(request, found, SubmittedForm(_kept(form), _errors(error, targets)))
    except Conflict as error:
        found = await request.operate.lists.get(name)
        return await _one(
            request,
            found,
            SubmittedForm(_kept(form), status=409),
            conflict=error.message,
            differs=_differs(found, form, targets),
        )
    return redirect(path_of(name), "changed")


async def remove(request: PageRequest) -> Response:
    await request.form()
    await request.operate.lists.remove(request.actor, request.path("name"))
    return redirect(PATH, "removed")


async def _one(
    request: PageRequest,
    found: NotificationList,
    form: SubmittedForm = EMPTY_FORM,
    *,
    conflict: str | None = None,
    differs: ListChange | None = None,
) -> Response:
    waiting, parked = await request.watch.notifications.of_list(found.name)
    values = {
        "waiting": _count_text(waiting, "waiting"),
        "parked": _count_text(parked, "parked"),
        "conflict": conflict,
        "differs": differs,
        "notice": request.notice(NOTICES),
    }
    return await _form(request, found, form, **values)


async def _form(
    request: PageRequest, found: NotificationList | None, form: SubmittedForm = EMPTY_FORM, **values: object
) -> Response:
    ways = await request.watch.channels.all()
    types = request.operate.channels.types()
    secret_types = [name for name, one in types.items() if one.has_target_secrets]
    return request.page(
        "list.html" if found else "new_list.html",
        form,
        found=found,
        own_path=path_of(found.name) if found else PATH,
        may_read_targets=request.may(Role.OPERATOR),
        retry_text=to_text(found.retry) if found and found.retry else "",
        types=[*types, LISTS_TYPE],
        secret_types=secret_types,
        bare=[t for t in found.targets if t not in found.secrets] if found and found.type in secret_types else [],
        missing=await _missing(request, found),
        channels=[(s.channel.name, s.channel.type) for s in ways.channels if not found or s.channel.type == found.type],
        used=next((s for s in ways.channels if found and found.name in s.lists), None),
        sites=[site.name for site in await request.operate.sites.all()],
        blocked_lists=_blocked_lists(ways),
        as_of=ways.as_of,
        is_parking=form.given.get("park_uncertain") == "true" if form.given else bool(found and found.park_uncertain),
        **values,
    )


def _blocked_lists(ways: ChannelOverview) -> set[str]:
    """The lists to which nothing is sent at present: by their channel's breaker, or by their own."""
    return {name for state in ways.channels for name in (state.lists if state.is_blocked else state.blocked_lists)}


async def _missing(request: PageRequest, found: NotificationList | None) -> set[str]:
    """The names in a list of lists that are no lists."""
    if found is None or found.type != LISTS_TYPE:
        return set()
    return set(found.targets).difference(one.name for one in await request.operate.lists.all())


async def _confirm_remove(request: PageRequest, found: NotificationList) -> Response:
    waiting = _count_text((await request.watch.notifications.of_list(found.name))[0], "waiting")
    return request.confirm(
        title=f"Remove the list {found.name}?",
        text=(f"{waiting}: they are parked at the next attempt. " if waiting else "")
        + "Later notifications to this name are parked until the list exists again.",
        action=f"{path_of(found.name)}/remove",
        button="Remove",
        back=path_of(found.name),
        role=Role.ADMIN,
    )


def _count_text(counted: Counted, word: str) -> str:
    """The count as text, `N or more` if it was cut off; empty for zero."""
    if not counted.is_whole:
        return f"{number(counted.count)} or more {word}"
    return f"{number(counted.count)} {word}" if counted.count else ""


def path_of(name: str) -> str:
    return f"{PATH}/{quote(name)}"


def _lines(text: str) -> list[tuple[int, str]]:
    """The non-empty lines with their numbers."""
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _properties(form: Mapping[str, str], targets: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """The properties in the form, except the name."""
    return {
        "targets": [text for _, text in targets],
        "channel": form.get("channel") or None,
        "park_uncertain": form.get("park_uncertain") == "true",
        "retry": form.get("retry", "").strip() or None,
        "allowed_sites": _sites(form),
        "severity": form.get("severity") or None,
        "rate": form.get("rate", "").strip() or None,
        "secrets": _secrets(form),
    }


def _kept(form: Mapping[str, str]) -> dict[str, str]:
    """The submitted fields except secrets, to fill the form again."""
    return {name: text for name, text in form.items() if name != "secrets"}


def _secrets(form: Mapping[str, str]) -> dict[str, str]:
    """New secrets, one per line: the target, an equals sign with spaces around it, the secret."""
    found = {}
    for line_number, line in _lines(form.get("secrets", "")):
        label, is_given, secret = line.partition(" = ")
        if not is_given:
            raise InvalidInput("list.secret_line", f"line {line_number} must be TARGET = SECRET", field="secrets")
        found[label.strip()] = secret.strip()
    return found


def _sites(form: Mapping[str, str]) -> list[str] | None:
    return [text for _, text in _lines(form.get("allowed_sites", ""))] or None


def _errors(error: FieldpostError, targets: Sequence[tuple[int, str]]) -> dict[str, str]:
    """The error by field; for a target, with its line number."""
    match = _TARGET.fullmatch(error.field or "")
    if match and int(match[1]) < len(targets):
        number, text = targets[int(match[1])]
        rule = error.message.partition(": ")[2] or error.message
        return {"targets": f"Line {number} ({text[:80]}): {rule}."}
    if (error.field or "").startswith("secrets."):
        return {"secrets": error_text(error)}
    errors = field_errors(error)
    return {"name": errors["list_name"]} if "list_name" in errors else errors


def _differs(found: NotificationList, form: Mapping[str, str], targets: Sequence[tuple[int, str]]) -> ListChange:
    """The difference between the current list and the form, before validation."""
    sites = _sites(form)
    mine = replace(
        found,
        targets=tuple(text for _, text in targets),
        channel_name=form.get("channel") or None,
        park_uncertain=form.get("park_uncertain") == "true",
        allowed_sites=tuple(sorted(set(sites))) if sites else None,
        severity=next((one for one in Severity if one.value == form.get("severity")), None),
    )
    change = compare(found, mine)
    stored = {"retry": to_text(found.retry) if found.retry else "", "rate": found.rate.text if found.rate else ""}
    others = tuple(name for name, value in stored.items() if form.get(name, "").strip() != value)
    return replace(change, properties=(*change.properties, *others))


MENU = MenuLine("Lists", PATH, "Set up", "l", also=(NEW_PATH, "/import/lists"))
ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", NEW_PATH, new, Access.ADMIN),
    PageRoute("POST", PATH + "/{name:path}/change", change, Access.ADMIN),
    PageRoute("POST", PATH + "/{name:path}/remove", remove, Access.ADMIN),
    PageRoute("GET", PATH + "/{name:path}", one, Access.VIEWER),
)
