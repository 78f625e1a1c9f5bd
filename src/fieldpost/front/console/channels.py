"""Channels: list, settings, breaker and test."""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from starlette.responses import Response

from fieldpost.central.access.audit_trail import KEEP
from fieldpost.central.operate.trial import Trial, trial_steps
from fieldpost.central.watch.channels import HELD_MAX, ChannelState
from fieldpost.central.watch.issue import IssueCode
from fieldpost.core.actor import Role
from fieldpost.core.delivery.breaker import channel_key
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.quantities import plural
from fieldpost.front.auth import Access
from fieldpost.front.console import channel_form
from fieldpost.front.console.kit.forms import version_of
from fieldpost.front.console.kit.markdown import read_guide
from fieldpost.front.console.kit.request import (
    EMPTY_FORM,
    MenuLine,
    PageRequest,
    PageRoute,
    SubmittedForm,
    error_text,
    redirect,
)

PATH = "/channels"
NEW_PATH = "/new/channel"
FORM_BYTES_MAX = 128 * 1024
NOTICES = {
    "added": "Channel added. Test it before you use it.",
    "changed": "Channel saved. If it was blocked, delivery is retried immediately.",
    "removed": "Channel removed.",
    "reset": "Breaker closed. Held notifications are sent in batches.",
}


async def page(request: PageRequest) -> Response:
    ways = await request.watch.channels.all()
    kinds = request.operate.channels.types()
    return request.page(
        "channels.html",
        ways=ways,
        as_of=ways.as_of,
        brief={state.channel.name: _brief(state, kinds) for state in ways.channels},
        path_of=path_of,
        held_max=HELD_MAX,
        notice=request.notice(NOTICES),
    )


async def one(request: PageRequest) -> Response:
    match request.http.query_params.get("confirm"):
        case "remove":
            return await _confirm_remove(request)
        case "reset":
            return await _confirm_reset(request)
        case _:
            return await _one(request)


async def new(request: PageRequest) -> Response:
    return _new(request, request.http.query_params.get("type", ""))


async def add(request: PageRequest) -> Response:
    form = await request.form(FORM_BYTES_MAX)
    channels = request.operate.channels
    type_, name = form.get("type", ""), form.get("name", "").strip()
    kind = channels.types().get(type_)
    if kind is None:
        return _new(request, type_, SubmittedForm(form))
    try:
        given = channel_form.read(kind, form)
        await channels.add(
            request.actor,
            name,
            type_,
            given.settings,
            given.secrets,
            is_default=form.get("is_default") == "true",
            retry=form.get("retry", "").strip() or None,
            **given.retries,
        )
    except InvalidInput as error:
        return _new(request, type_, SubmittedForm(form, channel_form.errors_of(error, kind)))
    except Conflict as error:
        return _new(request, type_, SubmittedForm.rejected(form, error, at="name", status=409))
    return redirect(path_of(name), "added")


async def change(request: PageRequest) -> Response:
    form = await request.form(FORM_BYTES_MAX)
    channels, name = request.operate.channels, request.path("name")
    found = await channels.get(name)
    kind = channels.types().get(found.type)
    if kind is None:
        message = f"no adapter of type {found.type!r} is installed on this node"
        raise NotFound("type.unknown", message, hint="install the adapter and restart central")
    try:
        given = channel_form.read(kind, form, found)
        retry = form.get("retry", "").strip()
        is_default = form.get("is_default") == "true"
        await channels.change(
            request.actor,
            name,
            given.settings,
            version_of(form),
            secrets=given.secrets,
            is_default=KEEP if is_default == found.is_default else is_default,
            retry=KEEP if retry == (to_text(found.retry) if found.retry else "") else retry or None,
            **given.retries,
        )
    except InvalidInput as error:
        return await _one(request, SubmittedForm(form, channel_form.errors_of(error, kind)))
    except Conflict as error:
        differs = [
            (setting, channel_form.as_text(found.settings.get(setting)), channel_form.as_text(value))
            for setting, value in given.settings.items()
        ] + [
            (name, channel_form.as_text(getattr(found, name)), channel_form.as_text(value))
            for name, value in given.retries.items()
        ]
        return await _one(request, SubmittedForm(form, status=409), conflict=error.message, differs=differs)
    return redirect(path_of(name), "changed")


async def remove(request: PageRequest) -> Response:
    await request.form()
    await request.operate.channels.remove(request.actor, request.path("name"))
    return redirect(PATH, "removed")


async def reset(request: PageRequest) -> Response:
    """Close the breaker and release held notifications."""
    await request.form()
    name = request.path("name")
    await request.operate.breakers.reset(request.actor, channel_key(name))
    return redirect(path_of(name), "reset")


async def test(request: PageRequest) -> Response:
    """Send a test to one target and show the result phase by phase."""
    form = await request.form()
    to = form.get("to", "").strip()
    try:
        tested = await request.operate.channels.test(request.actor, request.path("name"), to)
    except InvalidInput as error:
        return await _one(request, SubmittedForm(), to=to, test_error=error_text(error))
    return await _one(request, to=to, tested=tested)


async def _one(
    request: PageRequest, form: SubmittedForm = EMPTY_FORM, *, tested: Trial | None = None, **values: object
) -> Response:
    state, as_of = await request.watch.channels.one(request.path("name"))
    channel, channels = state.channel, request.operate.channels
    kind = channels.types().get(channel.type)
    shared: dict[str, object] = {
        "conflict": None,
        "differs": (),
        "notice": request.notice(NOTICES),
        "to": "",
        "test_error": None,
    }
    form = replace(form, given=channel_form.kept(form.given))
    return request.page(
        "channel.html",
        form,
        state=state,
        channel=channel,
        kind=kind,
        values=channel_form.shown(kind, channel) if kind else {},
        secrets=channels.shown_secrets(channel),
        warnings=channels.warnings(channel),
        policy_fields=kind.policy_fields if kind else (),
        retry_text=to_text(channel.retry) if channel.retry else "",
        is_default=form.given.get("is_default") == "true" if form.given else channel.is_default,
        guide=read_guide(kind.guide) if kind else (),
        tested=tested,
        cost=channels.test_cost(request.actor, channel) if request.may(Role.ADMIN) else None,
        steps=trial_steps(kind.phases, channel.settings, tested.outcome) if kind and tested else (),
        as_text=channel_form.as_text,
        held_max=HELD_MAX,
        own_path=path_of(channel.name),
        as_of=as_of,
        **shared | values,
    )


def _new(request: PageRequest, type_: str, form: SubmittedForm = EMPTY_FORM) -> Response:
    kinds = request.operate.channels.types()
    kind = kinds.get(type_) or (next(iter(kinds.values())) if len(kinds) == 1 else None)
    form = replace(form, given=channel_form.kept(form.given))
    return request.page(
        "new_channel.html",
        form,
        kind=kind,
        types=list(kinds),
        values={},
        secrets={},
        policy_fields=kind.policy_fields if kind else (),
        retry_text="",
        is_default=form.given.get("is_default") == "true",
        guide=read_guide(kind.guide) if kind else (),
    )


async def _confirm_remove(request: PageRequest) -> Response:
    state, _ = await request.watch.channels.one(request.path("name"))
    name, users = state.channel.name, state.lists
    why_not = None
    if users:
        shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
        why_not = f"The channel is used by {shown}. Choose another channel for these lists first."
    return request.confirm(
        title=f"Remove the channel {name}?",
        text="Its settings and secrets are deleted. No list uses it." if not users else "",
        action=f"{path_of(name)}/remove",
        button="Remove",
        back=path_of(name),
        role=Role.ADMIN,
        why_not=why_not,
    )


async def _confirm_reset(request: PageRequest) -> Response:
    state, _ = await request.watch.channels.one(request.path("name"))
    name = state.channel.name
    held = (
        f"{state.held} or more held notifications"
        if state.held >= HELD_MAX
        else plural(state.held, "held notification")
    )
    return request.confirm(
        title=f"Close the breaker of {name}?",
        text=f"Do this when the cause is fixed. It sends {held if state.held else 'due notifications'} immediately."
        " Otherwise the breaker tests one notification at a time and closes when a delivery succeeds.",
        action=f"{path_of(name)}/reset",
        button="Close the breaker",
        is_danger=False,
        back=path_of(name),
        role=Role.OPERATOR,
    )


def path_of(name: str) -> str:
    return f"{PATH}/{quote(name)}"


def _brief(state: ChannelState, kinds: Mapping[str, object]) -> str:
    """Settings that distinguish channels of one type."""
    shown = (channel_form.as_text(state.channel.settings.get(name)) for name in ("host", "url", "port", "from_address"))
    return ", ".join(text for text in shown if text) if state.channel.type in kinds else "adapter not installed"


MENU = MenuLine(
    "Channels", PATH, "Set up", "c", badge=(IssueCode.CHANNEL_BLOCKED,), badge_label="blocked", also=(NEW_PATH,)
)
ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", NEW_PATH, new, Access.ADMIN),
    PageRoute("POST", PATH + "/{name:path}/change", change, Access.ADMIN),
    PageRoute("POST", PATH + "/{name:path}/remove", remove, Access.ADMIN),
    PageRoute("POST", PATH + "/{name:path}/reset", reset, Access.OPERATOR),
    PageRoute("POST", PATH + "/{name:path}/test", test, Access.ADMIN),
    PageRoute("GET", PATH + "/{name:path}", one, Access.VIEWER),
)
