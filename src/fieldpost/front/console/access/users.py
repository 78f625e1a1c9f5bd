"""Users: list, roles, sessions, password links, disabling and removal."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from starlette.responses import Response

from fieldpost.central.access.users import Link, UserRecord
from fieldpost.core.actor import USER_ROLES, Role
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.front.auth import Access
from fieldpost.front.console.access.account import browser_of
from fieldpost.front.console.kit.forms import version_of
from fieldpost.front.console.kit.request import (
    EMPTY_FORM,
    MenuLine,
    PageRequest,
    PageRoute,
    SubmittedForm,
    error_text,
    redirect,
)

PATH = "/users"
ROLES = (
    (Role.VIEWER.value, "viewer: reads, except bodies"),
    (Role.OPERATOR.value, "operator: also retries and discards"),
    (Role.ADMIN.value, "admin: also configures"),
    (Role.SUBSCRIBER.value, "subscriber: one owner's subscriptions"),
)
LAST_ADMIN = "this is the last active administrator; make another user admin first"
NOTICES = {
    "role": "Role changed. The user's sessions have ended.",
    "disabled": "User disabled. Their sessions and tokens no longer work.",
    "enabled": "User enabled. Unexpired tokens work again.",
    "out": "User logged out everywhere.",
    "removed": "User removed with all sessions and tokens. The audit log keeps their actions.",
}


async def page(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    return request.page(
        "users.html",
        form,
        users=sorted(await request.operate.users.all(request.actor), key=lambda user: user.name),
        as_of=request.operate.logins.now(),
        own_path=own_path,
        roles=ROLES,
        notice=request.notice(NOTICES),
    )


async def add(request: PageRequest) -> Response:
    form = await request.form()
    try:
        name, role = form.get("name", "").strip(), role_of(form)
        link = await request.operate.users.add(request.actor, name, role, owner_of(form, role))
    except (InvalidInput, Conflict) as error:
        return await page(request, SubmittedForm.rejected(form, error, at="name"))
    return _show_link(request, link, f"User {link.name} added")


async def one(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    users, name = request.operate.users, request.path("name")
    user = await users.get(request.actor, name)
    return request.page(
        "user.html",
        form,
        user=user,
        is_last_admin=is_last_admin(user, await users.all(request.actor)),
        why_last=LAST_ADMIN,
        sessions=await users.sessions(request.actor, name),
        tokens=[token for token in await request.operate.tokens.all(request.actor) if token.owner == name],
        browser=browser_of,
        as_of=request.operate.logins.now(),
        own_path=own_path(name),
        roles=ROLES,
        notice=request.notice(NOTICES),
    )


async def change_role(request: PageRequest) -> Response:
    form = await request.form()
    try:
        role = role_of(form)
        owner = owner_of(form, role)
        await request.operate.users.change(
            request.actor, request.path("name"), version_of(form), role=role, subscription_owner=owner
        )
    except (InvalidInput, Conflict) as error:
        return await one(request, SubmittedForm.rejected(form, error, at="role", status=409))
    return redirect(own_path(request.path("name")), "role")


async def disable(request: PageRequest) -> Response:
    return await _switch(request, is_disabled=True)


async def enable(request: PageRequest) -> Response:
    return await _switch(request, is_disabled=False)


async def reset_password(request: PageRequest) -> Response:
    await request.form()
    link = await request.operate.users.reset_password(request.actor, request.path("name"))
    return _show_link(request, link, f"Password link for {link.name}")


async def log_out(request: PageRequest) -> Response:
    await request.form()
    name = request.path("name")
    await request.operate.users.log_out(request.actor, name)
    return redirect(own_path(name), "out")


async def confirm_remove(request: PageRequest) -> Response:
    user = await request.operate.users.get(request.actor, request.path("name"))
    is_last = is_last_admin(user, await request.operate.users.all(request.actor))
    return _confirm_remove(request, user.name, f"{LAST_ADMIN}." if is_last else None)


async def remove(request: PageRequest) -> Response:
    await request.form()
    name = request.path("name")
    try:
        await request.operate.users.remove(request.actor, name)
    except Conflict as error:
        return _confirm_remove(request, name, error_text(error), 409)
    return redirect(PATH, "removed")


def own_path(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


def role_of(form: Mapping[str, str], roles: Sequence[Role] = USER_ROLES) -> Role:
    text = form.get("role", "")
    if text not in roles:
        raise InvalidInput("role.unknown", f"role must be one of {', '.join(roles)}", field="role")
    return Role(text)


def owner_of(form: Mapping[str, str], role: Role) -> str | None:
    """The owner name in the form, which is used for subscribers only."""
    return (form.get("subscription_owner", "").strip() or None) if role is Role.SUBSCRIBER else None


def is_last_admin(user: UserRecord, users: Sequence[UserRecord]) -> bool:
    """Whether this is the only enabled administrator."""
    return [one.name for one in users if one.role == Role.ADMIN and one.disabled_at is None] == [user.name]


async def _switch(request: PageRequest, *, is_disabled: bool) -> Response:
    form = await request.form()
    name = request.path("name")
    try:
        await request.operate.users.change(request.actor, name, version_of(form), is_disabled=is_disabled)
    except Conflict as error:
        return await one(request, SubmittedForm.rejected({}, error, status=409))
    return redirect(own_path(name), "disabled" if is_disabled else "enabled")


def _show_link(request: PageRequest, link: Link, title: str) -> Response:
    """The password link, shown only in this response and in no URL."""
    base = request.backend.options.public_url.rstrip("/")
    return request.page("password_link.html", title=title, link=link, base=base, own_path=own_path(link.name))


def _confirm_remove(request: PageRequest, name: str, why_not: str | None, status: int = 200) -> Response:
    return request.confirm(
        form=SubmittedForm(status=status),
        title=f"Remove {name}?",
        text="All sessions, tokens and links of this user end. The audit log keeps their actions."
        " To block the user temporarily, disable the account instead.",
        action=f"{own_path(name)}/remove",
        button="Remove",
        back=own_path(name),
        why_not=why_not,
    )


MENU = MenuLine("Users", PATH, "Records", "u", Access.ADMIN)
ROUTES = (
    PageRoute("GET", PATH, page, Access.ADMIN),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", f"{PATH}/{{name}}", one, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{name}}/role", change_role, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{name}}/disable", disable, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{name}}/enable", enable, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{name}}/reset-password", reset_password, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{name}}/log-out", log_out, Access.ADMIN),
    PageRoute("GET", f"{PATH}/{{name}}/remove", confirm_remove, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{name}}/remove", remove, Access.ADMIN),
)
