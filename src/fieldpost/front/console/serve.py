"""The table of pages made into endpoints: first who visits, then the page, or a page that says what is wrong."""

from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlencode, urlsplit

import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound, Unavailable
from fieldpost.front.auth import Access
from fieldpost.front.backend import Backend
from fieldpost.front.console import live
from fieldpost.front.console.kit.compression import compress, takes_gzip
from fieldpost.front.console.kit.render import Renderer
from fieldpost.front.console.kit.request import (
    PageRequest,
    PageRoute,
    redirect,
    session_cookie_name,
    visitor_cookie_name,
)
from fieldpost.front.console.kit.static_files import StaticFiles
from fieldpost.front.console.pages import MENU, PAGES, STATIC

log = structlog.get_logger()

_STATUSES: tuple[tuple[type[FieldpostError], int], ...] = (
    (InvalidInput, 422),
    (NotFound, 404),
    (Conflict, 409),
    (Denied, 403),
    (Unavailable, 503),
)
_TITLES = {
    403: "Not allowed",
    404: "Not found",
    405: "Not possible",
    409: "Too late",
    422: "That does not fit",
    503: "Not now",
}


class Console:
    """All pages over these backend."""

    def __init__(self, backend: Backend) -> None:
        self._rooms = backend
        self._files = StaticFiles()
        self._renderer = Renderer(self._files)

    def add_routes(self, app: FastAPI) -> None:
        for page in PAGES:
            app.router.routes.append(HttpRoute(page.path, self._endpoint(page), methods=[page.method]))
        app.router.routes.append(HttpRoute(STATIC, self._static, methods=["GET"]))

    async def problem(self, request: Request, status: int, detail: str, hint: str | None = None) -> Response:
        """A page that says what is wrong, and what to do."""
        try:
            visit = await self._visit(request)
        except Unavailable:
            # Who the visitor is cannot be asked of a store that does not answer.
            visit = PageRequest(request, self._rooms, self._renderer, None, None)
        title = _TITLES.get(status, "Something is wrong")
        return compress(request, visit.page("problem.html", status, title=title, detail=detail, hint=hint))

    def _endpoint(self, page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                visit = await self._visit(request)
                if page.access is not Access.ANYONE:
                    if visit.visitor is None:
                        return _to_login(visit)
                    visit.visitor.require(page.access.role)
                return compress(request, await page.handler(visit))
            except FieldpostError as error:
                if isinstance(error, Denied):
                    log.warning("visit.denied", method=page.method, path=request.url.path, code=error.code)
                return await self._explain(request, error)

        return endpoint

    async def _visit(self, request: Request) -> PageRequest:
        token = request.cookies.get(session_cookie_name(request))
        # A page that brings itself up to date is nobody's doing, and keeps no session alive.
        is_active = request.headers.get("hx-request") != "true" and request.url.path != live.PATH
        accounts = self._rooms.operate.accounts
        visitor = await accounts.by_session(token, is_active=is_active) if token else None
        secret = token if visitor else request.cookies.get(visitor_cookie_name(request))
        # What a form leads to is another page, which then tells.
        signal = await self._rooms.watch.signals.now() if visitor and request.method == "GET" else None
        return PageRequest(request, self._rooms, self._renderer, visitor, secret, MENU, signal)

    async def _explain(self, request: Request, error: FieldpostError) -> Response:
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        detail = error.message[:1].upper() + error.message[1:] + "."
        return await self.problem(request, status, detail, error.hint)

    async def _static(self, request: Request) -> Response:
        query, gzip = request.query_params, takes_gzip(request.headers)
        found = self._files.response(request.path_params["name"], query.get("v"), gzip=gzip)
        return found or await self.problem(request, 404, "There is no such file.")


def _to_login(visit: PageRequest) -> Response:
    if visit.request.method != "GET":
        before = urlsplit(visit.request.headers.get("referer", ""))
        is_ours = before.netloc == visit.request.url.netloc
        return redirect(f"/login?{urlencode({'next': _address(before) if is_ours else '/'})}", done="ended")
    path = "/login" if visit.here == "/" else f"/login?{urlencode({'next': visit.here})}"
    if visit.is_live_update:
        return Response(status_code=401, headers={"HX-Redirect": path})
    return redirect(path)


def _address(url: SplitResult) -> str:
    return f"{url.path}?{url.query}" if url.query else url.path
