"""Coming in and going out: the login, the one-time link, the logout."""

from dataclasses import replace

from starlette.responses import Response

from fieldpost.central.access.accounts import LINK_PATH
from fieldpost.central.access.logins import TooManyLogins
from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.core.login import PASSWORD_LENGTH_MIN
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.forms import local_path, new_secret
from fieldpost.front.console.kit.request import (
    PageRequest,
    PageRoute,
    redirect,
    session_cookie_name,
    set_cookie,
    set_session,
    visitor_cookie_name,
)

NOTICES = {"ended": "Your session has ended, and nothing was done. Log in, and do it again."}


async def login_page(visit: PageRequest) -> Response:
    if visit.visitor is not None:
        return redirect(local_path(visit.request.query_params.get("next")))
    values = {"error": None, "name": "", "next_path": _next(visit), "warning": visit.notice(NOTICES)}
    return _to_stranger(visit, "login.html", 200, **values)


async def log_in(visit: PageRequest) -> Response:
    form = await visit.form()
    visit.check_privacy()
    name = form.get("name", "")
    try:
        session = await visit.backend.operate.logins.log_in(name, form.get("password", ""), visit.origin)
    except (Denied, TooManyLogins) as error:
        status = 401 if isinstance(error, Denied) else 429
        values = {"error": error.message, "name": name[:256], "next_path": local_path(form.get("next"))}
        return _to_stranger(visit, "login.html", status, **values)
    await _end_session_before(visit)
    response = redirect(local_path(form.get("next")))
    set_session(response, visit.request, session)
    return response


async def link_page(visit: PageRequest) -> Response:
    """Shows whose password is to be chosen. Looking uses nothing up: mail programs look at links by themselves."""
    link = visit.request.query_params.get("link", "")
    name = await visit.backend.operate.logins.whose_link(link)
    return _choose(visit, link, name)


async def use_link(visit: PageRequest) -> Response:
    form = await visit.form()
    visit.check_privacy()
    link, password = form.get("link", ""), form.get("password", "")
    name = await visit.backend.operate.logins.whose_link(link)
    if password != form.get("again", ""):
        return _choose(visit, link, name, 422, "the two passwords are not the same")
    try:
        session = await visit.backend.operate.logins.use_link(link, password, visit.origin)
    except InvalidInput as error:
        return _choose(visit, link, name, 422, error.message)
    await _end_session_before(visit)
    response = redirect("/")
    set_session(response, visit.request, session)
    return response


async def log_out(visit: PageRequest) -> Response:
    await visit.form()
    assert visit.secret is not None
    await visit.backend.operate.logins.log_out(visit.secret)
    return logged_out(visit)


def logged_out(visit: PageRequest) -> Response:
    """To the login, without the cookie."""
    response = redirect("/login")
    name = session_cookie_name(visit.request)
    response.delete_cookie(name, path="/", secure=visit.request.url.scheme == "https", httponly=True, samesite="lax")
    return response


def _choose(visit: PageRequest, link: str, name: str, status: int = 200, error: str | None = None) -> Response:
    values = {"link": link, "name": name, "error": error, "length_min": PASSWORD_LENGTH_MIN}
    return _to_stranger(visit, "set_password.html", status, **values)


def _to_stranger(visit: PageRequest, template: str, status: int = 200, **values: object) -> Response:
    """A page with a form for somebody who has no session; his forms are tied to a cookie of their own."""
    is_known = visit.visitor is not None
    secret = visit.secret or new_secret()
    page = replace(visit, secret=secret).page(
        template,
        status,
        is_unsafe=visit.is_readable_on_the_way,
        oidc_label=visit.backend.operate.oidc.label if visit.backend.operate.oidc else None,
        **values,
    )
    if not is_known:
        set_cookie(page, visit.request, visitor_cookie_name(visit.request), secret)
    return page


async def _end_session_before(visit: PageRequest) -> None:
    """Whoever comes in anew leaves the session that his browser had."""
    token = visit.request.cookies.get(session_cookie_name(visit.request))
    if token is not None and visit.visitor is not None:
        await visit.backend.operate.logins.log_out(token)


def _next(visit: PageRequest) -> str:
    return local_path(visit.request.query_params.get("next"))


ROUTES = (
    PageRoute("GET", "/login", login_page, Access.ANYONE),
    PageRoute("POST", "/login", log_in, Access.ANYONE),
    PageRoute("GET", LINK_PATH, link_page, Access.ANYONE),
    PageRoute("POST", LINK_PATH, use_link, Access.ANYONE),
    PageRoute("POST", "/logout", log_out, Access.VIEWER),
)
