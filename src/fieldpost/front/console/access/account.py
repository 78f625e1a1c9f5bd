"""The user's own account: password, sessions, theme."""

from starlette.responses import Response

from fieldpost.central.access.logins import TooManyLogins
from fieldpost.core.errors import Denied, InvalidInput, NotFound
from fieldpost.core.login import PASSWORD_LENGTH_MIN
from fieldpost.front.auth import Access
from fieldpost.front.console.access.sessions import logged_out
from fieldpost.front.console.kit.request import (
    THEME_COOKIE,
    THEMES,
    PageRequest,
    PageRoute,
    redirect,
    set_cookie,
    set_session,
)
from fieldpost.link import credentials

THEME_S = 5 * 365 * 86400

NOTICES = {"password": "Password changed. Your other sessions have ended.", "ended": "Session ended."}


async def change_password(request: PageRequest) -> Response:
    form = await request.form()
    request.require_tls()
    if form.get("password", "") != form.get("again", ""):
        return await page(request, 422, "the new passwords do not match")
    try:
        session = await request.operate.logins.change_password(
            request.actor, form.get("old", ""), form.get("password", ""), request.origin
        )
    except (Denied, InvalidInput) as error:
        return await page(request, 422, error.message)
    except TooManyLogins as error:
        return await page(request, 429, error.message)
    response = redirect("/account", "password")
    set_session(response, request.http, session)
    return response


async def change_theme(request: PageRequest) -> Response:
    theme = (await request.form()).get("theme", "")
    if theme not in THEMES:
        raise InvalidInput("form.theme", f"theme must be one of {', '.join(THEMES)}", field="theme")
    response = redirect("/account")
    set_cookie(response, request.http, THEME_COOKIE, theme, THEME_S)
    return response


async def end_session(request: PageRequest) -> Response:
    await request.form()
    session_id = request.path("session_id")
    try:
        await request.operate.logins.end(request.actor, session_id)
    except NotFound:
        # Already ended on another page or expired: the desired result.
        return redirect("/account", "ended")
    return logged_out(request) if session_id == _own_id(request) else redirect("/account", "ended")


async def log_out_everywhere(request: PageRequest) -> Response:
    await request.form()
    await request.operate.logins.log_out_everywhere(request.actor)
    return logged_out(request)


async def page(request: PageRequest, status: int = 200, error: str | None = None) -> Response:
    logins = request.operate.logins
    return request.page(
        "account.html",
        status,
        sessions=await logins.sessions(request.actor),
        has_password=await logins.has_password(request.actor),
        own_id=_own_id(request),
        as_of=logins.now(),
        browser=browser_of,
        themes=THEMES,
        notice=request.notice(NOTICES),
        error=error,
        length_min=PASSWORD_LENGTH_MIN,
        is_unsafe=request.is_exposed,
    )


_BROWSERS = (("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = ("iPhone", "iPad", "Android", "Windows", "Mac OS X", "Linux")


def browser_of(agent: str | None) -> str:
    """A short name for a browser, guessed from its User-Agent, to distinguish sessions."""
    if not agent:
        return "unknown"
    name = next((word for sign, word in _BROWSERS if sign in agent), None)
    system = next((sign.replace("Mac OS X", "macOS") for sign in _SYSTEMS if sign in agent), None)
    if name is None:
        return agent if len(agent) <= 60 else agent[:59] + "…"
    return f"{name} on {system}" if system else name


def _own_id(request: PageRequest) -> str | None:
    return credentials.prefix_of(request.secret or "", "session")


ROUTES = (
    PageRoute("GET", "/account", page, Access.USER),
    PageRoute("POST", "/account/password", change_password, Access.USER),
    PageRoute("POST", "/account/theme", change_theme, Access.USER),
    PageRoute("POST", "/account/sessions/{session_id}/end", end_session, Access.USER),
    PageRoute("POST", "/account/log-out-everywhere", log_out_everywhere, Access.USER),
)
