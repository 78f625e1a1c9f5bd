"""Logging in and out."""

from starlette.responses import Response

from fieldpost.core.errors import Denied
from fieldpost.front.console.forms import local_path, new_secret
from fieldpost.front.console.visit import (
    Visit,
    redirect,
    session_cookie_name,
    set_cookie,
    set_session,
    visitor_cookie_name,
)


async def login_page(visit: Visit) -> Response:
    if visit.visitor is not None:
        return redirect(local_path(visit.request.query_params.get("next")))
    secret = visit.secret or new_secret()
    page = _login(visit, secret, visit.request.query_params.get("next"))
    set_cookie(page, visit.request, visitor_cookie_name(visit.request), secret)
    return page


async def log_in(visit: Visit) -> Response:
    form = await visit.form()
    try:
        session = await visit.rooms.operate.accounts.log_in(form.get("name", ""), form.get("password", ""))
    except Denied as error:
        assert visit.secret is not None, "the form was tied to it"
        return _login(visit, visit.secret, form.get("next"), error.message, form.get("name", ""))
    response = redirect(local_path(form.get("next")))
    set_session(response, visit.request, session)
    return response


async def log_out(visit: Visit) -> Response:
    await visit.form()
    assert visit.secret is not None
    await visit.rooms.operate.accounts.log_out(visit.secret)
    response = redirect("/login")
    response.delete_cookie(session_cookie_name(visit.request), path="/")
    return response


def _login(visit: Visit, secret: str, next_path: str | None, error: str | None = None, name: str = "") -> Response:
    visit = Visit(visit.request, visit.rooms, visit.renderer, None, secret)
    return visit.page(
        "login.html", 200 if error is None else 401, next_path=local_path(next_path), error=error, name=name[:256]
    )
