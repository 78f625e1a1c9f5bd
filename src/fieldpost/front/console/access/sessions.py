"""Login, password links and logout."""

from contextlib import suppress
from dataclasses import replace

from starlette.responses import Response

from fieldpost.central.access.accounts import LINK_PATH
from fieldpost.central.access.logins import TooManyLogins
from fieldpost.core.errors import Denied, InvalidInput, NotFound
from fieldpost.core.login import PASSWORD_LENGTH_MIN
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.forms import local_path, new_secret
from fieldpost.front.console.kit.request import (
    PageRequest,
    PageRoute,
    cookie_name,
    delete_cookie,
    redirect,
    set_cookie,
    set_session,
)

NOTICES = {"ended": "Your session has expired and the action was not performed. Log in and try again."}


async def login_page(request: PageRequest) -> Response:
    next_path = local_path(request.http.query_params.get("next"))
    if request.visitor is not None:
        return redirect(next_path)
    values = {"error": None, "name": "", "next_path": next_path, "warning": request.notice(NOTICES)}
    return _anonymous_page(request, "login.html", 200, **values)


async def log_in(request: PageRequest) -> Response:
    form = await request.form()
    request.require_tls()
    name = form.get("name", "")
    try:
        session = await request.operate.logins.log_in(name, form.get("password", ""), request.origin)
    except (Denied, TooManyLogins) as error:
        status = 401 if isinstance(error, Denied) else 429
        values = {"error": error.message, "name": name[:256], "next_path": local_path(form.get("next"))}
        return _anonymous_page(request, "login.html", status, **values)
    await end_previous_session(request)
    response = redirect(local_path(form.get("next")))
    set_session(response, request.http, session)
    return response


async def link_page(request: PageRequest) -> Response:
    """The form to choose a password. A GET does not use up the link, because mail programs prefetch links."""
    link = request.http.query_params.get("link", "")
    name = await request.operate.logins.whose_link(link)
    return _choose(request, link, name)


async def use_link(request: PageRequest) -> Response:
    form = await request.form()
    request.require_tls()
    link, password = form.get("link", ""), form.get("password", "")
    name = await request.operate.logins.whose_link(link)
    if password != form.get("again", ""):
        return _choose(request, link, name, 422, "the passwords do not match")
    try:
        session = await request.operate.logins.use_link(link, password, request.origin)
    except InvalidInput as error:
        return _choose(request, link, name, 422, error.message)
    await end_previous_session(request)
    response = redirect("/")
    set_session(response, request.http, session)
    return response


async def log_out(request: PageRequest) -> Response:
    await request.form()
    assert request.secret is not None
    await request.operate.logins.log_out(request.secret)
    return logged_out(request)


def logged_out(request: PageRequest) -> Response:
    """Redirect to the login and delete the session cookie."""
    response = redirect("/login")
    delete_cookie(response, request.http, cookie_name(request.http, "session"))
    return response


def _choose(request: PageRequest, link: str, name: str, status: int = 200, error: str | None = None) -> Response:
    values = {"link": link, "name": name, "error": error, "length_min": PASSWORD_LENGTH_MIN}
    return _anonymous_page(request, "set_password.html", status, **values)


def _anonymous_page(request: PageRequest, template: str, status: int = 200, **values: object) -> Response:
    """A form for a browser without a session; a separate cookie protects it."""
    is_known = request.visitor is not None
    secret = request.secret or new_secret()
    page = replace(request, secret=secret).page(
        template,
        status,
        is_unsafe=request.is_exposed,
        oidc_label=request.operate.oidc.label if request.operate.oidc else None,
        **values,
    )
    if not is_known:
        set_cookie(page, request.http, cookie_name(request.http, "visitor"), secret)
    return page


async def end_previous_session(request: PageRequest) -> None:
    """End the previous session of this browser."""
    token = request.http.cookies.get(cookie_name(request.http, "session"))
    if token is not None and request.visitor is not None:
        # It may have ended by now, with a changed role for example.
        with suppress(NotFound):
            await request.operate.logins.log_out(token)


ROUTES = (
    PageRoute("GET", "/login", login_page, Access.ANYONE),
    PageRoute("POST", "/login", log_in, Access.ANYONE),
    PageRoute("GET", LINK_PATH, link_page, Access.ANYONE),
    PageRoute("POST", LINK_PATH, use_link, Access.ANYONE),
    PageRoute("POST", "/logout", log_out, Access.USER),
)
