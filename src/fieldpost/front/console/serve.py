"""Serves the pages: identify the user, check the role, render the page or the error page."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlencode, urlsplit

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from fieldpost.core.actor import Role
from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound, Unavailable
from fieldpost.front.admission import authenticated
from fieldpost.front.auth import Access
from fieldpost.front.backend import Backend
from fieldpost.front.console import live
from fieldpost.front.console.kit.compression import compress, takes_gzip
from fieldpost.front.console.kit.render import Renderer
from fieldpost.front.console.kit.request import (
    PageRequest,
    PageRoute,
    cookie_name,
    redirect,
)
from fieldpost.front.console.kit.static_files import StaticFiles
from fieldpost.front.console.pages import MENU, PAGES, STATIC
from fieldpost.front.http.problems import without_internals

log = structlog.get_logger()

_STATUSES: dict[type[FieldpostError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    Conflict: 409,
    Denied: 403,
    Unavailable: 503,
}
_TITLES = {
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Changed by someone else",
    422: "Invalid input",
    503: "Temporarily unavailable",
}


class Console:
    """All pages of the console, as routes of the application."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._files = StaticFiles()
        self._renderer = Renderer(self._files)

    def add_routes(self, app: Starlette) -> None:
        for page in PAGES:
            app.router.routes.append(HttpRoute(page.path, self._endpoint(page), methods=[page.method]))
        app.router.routes.append(HttpRoute(STATIC, self._static, methods=["GET"]))

    async def problem(self, http: Request, status: int, detail: str, hint: str | None = None) -> Response:
        """The error page: the problem and how to solve it."""
        try:
            request = await self._identify(http)
        except Unavailable:
            # The store is down, so the session cannot be looked up.
            request = PageRequest(http, self._backend, self._renderer, None, None)
        title = _TITLES.get(status, "Internal error")
        return compress(http, request.page("problem.html", status, title=title, detail=detail, hint=hint))

    def _endpoint(self, page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(http: Request) -> Response:
            try:
                request = await self._identify(http)
                if page.access is not Access.ANYONE:
                    if request.visitor is None:
                        return _to_login(request)
                    request.visitor.require(*page.access.roles)
                return compress(http, await page.handler(request))
            except FieldpostError as error:
                if isinstance(error, Denied):
                    address = http.client.host if http.client else ""
                    log.warning("page.denied", method=page.method, path=http.url.path, code=error.code, address=address)
                    action = f"{page.method} {page.path}"
                    await self._backend.operate.refusals.note(error, action, error.actor, address)
                return await self._explain(http, error)

        return endpoint

    async def _identify(self, http: Request) -> PageRequest:
        """The request with the user of its session, if it has one."""
        token = http.cookies.get(cookie_name(http, "session"))
        # A live update is not user activity and does not extend the session.
        is_active = http.headers.get("hx-request") != "true" and http.url.path != live.PATH
        accounts = self._backend.operate.accounts
        visitor = await accounts.by_session(token, is_active=is_active) if token else None
        if visitor is not None:
            authenticated(http.scope.get("state"))
        secret = token if visitor else http.cookies.get(cookie_name(http, "visitor"))
        if visitor is None:
            return PageRequest(http, self._backend, self._renderer, None, secret, MENU)
        change_tokens = urlencode(await self._backend.change_feed.tokens())
        # A subscriber sees only subscriptions, so issues of the installation are none of its business.
        is_viewer = visitor.role.includes(Role.VIEWER)
        issues = (await self._backend.watch.overview.now()).issues if is_viewer else ()
        return PageRequest(http, self._backend, self._renderer, visitor, secret, MENU, issues, change_tokens)

    async def _explain(self, http: Request, error: FieldpostError) -> Response:
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)
        error = without_internals(error)
        detail = error.message[:1].upper() + error.message[1:] + "."
        return await self.problem(http, status, detail, error.hint)

    async def _static(self, http: Request) -> Response:
        query, gzip = http.query_params, takes_gzip(http.headers)
        found = self._files.response(http.path_params["name"], query.get("v"), gzip=gzip)
        return found or await self.problem(http, 404, "This file does not exist.")


def _to_login(request: PageRequest) -> Response:
    if request.http.method != "GET":
        before = urlsplit(request.http.headers.get("referer", ""))
        is_ours = before.netloc == request.http.url.netloc
        back = f"{before.path}?{before.query}" if before.query else before.path
        return redirect(f"/login?{urlencode({'next': back if is_ours else '/'})}", done="ended")
    path = "/login" if request.here == "/" else f"/login?{urlencode({'next': request.here})}"
    if request.is_live_update:
        return Response(status_code=401, headers={"HX-Redirect": path})
    return redirect(path)
