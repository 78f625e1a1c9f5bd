"""Login through an identity provider."""

from urllib.parse import quote, unquote

from starlette.responses import RedirectResponse, Response

from fieldpost.central.access.oidc import CALLBACK_PATH, Begun, Oidc
from fieldpost.core.errors import Denied, NotFound
from fieldpost.front.auth import Access
from fieldpost.front.console.access.sessions import end_previous_session
from fieldpost.front.console.kit.forms import local_path
from fieldpost.front.console.kit.request import (
    PageRequest,
    PageRoute,
    cookie_name,
    delete_cookie,
    redirect,
    set_cookie,
    set_session,
)

PATH = "/login/oidc"
UNDER_WAY_S = 600


async def begin(request: PageRequest) -> Response:
    """Redirect to the provider; a cookie keeps the state of this login."""
    request.require_tls()
    begun = await _oidc(request).begin()
    response = RedirectResponse(begun.url, 303)
    next_path = quote(local_path(request.http.query_params.get("next")), safe="")
    state = f"{next_path}|{begun.to_cookie(request.operate.logins.signer)}"
    set_cookie(response, request.http, cookie_name(request.http, "oidc"), state, UNDER_WAY_S)
    return response


async def finish(request: PageRequest) -> Response:
    """The provider's callback: the only GET that logs in, protected by `state`."""
    request.require_tls()
    oidc, query = _oidc(request), request.http.query_params
    cookie = cookie_name(request.http, "oidc")
    next_path, _, kept = request.http.cookies.get(cookie, "").partition("|")
    begun = Begun.from_cookie(request.operate.logins.signer, kept)
    if "code" not in query:
        raise Denied("oidc.refused", "the identity provider rejected the login", hint="try again")
    session = await oidc.finish(begun, query.get("state", ""), query["code"], request.origin)
    await end_previous_session(request)
    response = redirect(local_path(unquote(next_path)))
    set_session(response, request.http, session)
    delete_cookie(response, request.http, cookie)
    return response


def _oidc(request: PageRequest) -> Oidc:
    if request.operate.oidc is None:
        raise NotFound("oidc.none", "no identity provider is configured")
    return request.operate.oidc


ROUTES = (PageRoute("GET", PATH, begin, Access.ANYONE), PageRoute("GET", CALLBACK_PATH, finish, Access.ANYONE))
