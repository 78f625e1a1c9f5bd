"""API tokens: all of them for administrators, their own for other users."""

from collections.abc import Mapping
from datetime import timedelta

from starlette.responses import Response

from fieldpost.central.access.tokens import OVERLAP_DEFAULT, TOKEN_LIFE, AddedToken, TokenRecord
from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.front.auth import Access
from fieldpost.front.console.access.users import ROLES, owner_of, role_of
from fieldpost.front.console.kit.request import EMPTY_FORM, MenuLine, PageRequest, PageRoute, SubmittedForm, redirect

PATH = "/tokens"
LIVES = (("7", "1 week"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("never", "no expiry"))
ROLES_OF_TOKENS = (*ROLES, (Role.PUBLISHER.value, "publisher: publishes events, sends, reads its own"))
NOTICES = {"revoked": "Token revoked. It no longer works."}


async def page(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    users = await request.operate.users.all(request.actor) if request.may(Role.ADMIN) else []
    tokens = await request.operate.tokens.all(request.actor)
    return request.page(
        "tokens.html",
        form,
        tokens=sorted(tokens, key=lambda token: token.created_at, reverse=True),
        users=sorted(user.name for user in users if user.disabled_at is None),
        roles=ROLES_OF_TOKENS,
        lives=LIVES,
        life=str(TOKEN_LIFE.days),
        as_of=request.operate.logins.now(),
        notice=request.notice(NOTICES),
    )


async def add(request: PageRequest) -> Response:
    form = await request.form()
    try:
        added = await request.operate.tokens.add(
            request.actor,
            form.get("name", "").strip(),
            role := role_of(form, tuple(Role)),
            owner=form.get("owner", "") or None,
            subscription_owner=owner_of(form, role),
            life=_life(form),
        )
    except NotFound as error:
        return await page(request, SubmittedForm.rejected(form, error, at="owner"))
    except (InvalidInput, Conflict) as error:
        # The role is limited by the owner's; the name must never have been used.
        field = {"token.role": "role", "token.owner": "subscription_owner"}.get(error.code, "name")
        return await page(request, SubmittedForm.rejected(form, error, at=field))
    return _show_once(request, added)


async def confirm_rotate(request: PageRequest) -> Response:
    found = await _find(request)
    return request.confirm(
        title=f"Rotate {found.name}?",
        text=f"Another token named {found.name} is issued and shown once. This one works for"
        f" {OVERLAP_DEFAULT.total_seconds() / 3600:.0f} hours more.",
        action=f"{PATH}/{found.prefix}/rotate",
        button="Rotate",
        back=PATH,
    )


async def rotate(request: PageRequest) -> Response:
    await request.form()
    found = await _find(request)
    return _show_once(request, await request.operate.tokens.rotate(request.actor, found.name or ""))


def _show_once(request: PageRequest, added: AddedToken) -> Response:
    # The token is shown only in this response.
    url = request.backend.options.public_url.rstrip("/") or "CENTRAL"
    return request.page("token_added.html", added=added, url=url, as_of=request.operate.logins.now())


async def confirm_revoke(request: PageRequest) -> Response:
    found = await _find(request)
    used = "It has been used before." if found.last_used_at else "It was never used."
    return request.confirm(
        title=f"Revoke {found.name or found.prefix}?",
        text=f"Programs that use this token of {found.owner} lose access immediately. {used}",
        action=f"{PATH}/{found.prefix}/revoke",
        button="Revoke",
        back=PATH,
    )


async def revoke(request: PageRequest) -> Response:
    await request.form()
    try:
        await request.operate.tokens.revoke(request.actor, request.path("token_id"))
    except NotFound as error:
        return await page(request, SubmittedForm.rejected({}, error, status=404))
    return redirect(PATH, "revoked")


async def _find(request: PageRequest) -> TokenRecord:
    token_id = request.path("token_id")
    found = next((one for one in await request.operate.tokens.all(request.actor) if one.prefix == token_id), None)
    if found is None:
        raise NotFound("token.unknown", "this token does not exist, or you may not change it")
    return found


def _life(form: Mapping[str, str]) -> timedelta | None:
    text = form.get("life", str(TOKEN_LIFE.days))
    if text not in dict(LIVES):
        raise InvalidInput("token.life", "life must be one of the offered values", field="life")
    return None if text == "never" else timedelta(days=int(text))


MENU = MenuLine("Tokens", PATH, "Records", "t", Access.USER)
ROUTES = (
    PageRoute("GET", PATH, page, Access.USER),
    PageRoute("POST", PATH, add, Access.ADMIN),
    PageRoute("GET", f"{PATH}/{{token_id}}/rotate", confirm_rotate, Access.ADMIN),
    PageRoute("POST", f"{PATH}/{{token_id}}/rotate", rotate, Access.ADMIN),
    PageRoute("GET", f"{PATH}/{{token_id}}/revoke", confirm_revoke, Access.USER),
    PageRoute("POST", f"{PATH}/{{token_id}}/revoke", revoke, Access.USER),
)
