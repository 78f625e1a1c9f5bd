"""Serves the ZGW API: authenticate the client, check its scope, run the handler, encode the answer or the fault."""

from collections.abc import Awaitable, Callable

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.routing import compile_path

from fieldpost.central.operate.zgw.clients import RefusedToken
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.clock import Clock
from fieldpost.core.errors import Denied, FieldpostError
from fieldpost.core.zgw.client import ZgwClient
from fieldpost.core.zgw.token import refuse
from fieldpost.front.admission import authenticated
from fieldpost.front.allowance import DocumentAllowances
from fieldpost.front.auth import REQUIRED, bearer
from fieldpost.front.backend import Backend
from fieldpost.front.guard import report_bug
from fieldpost.front.zgw.call import BASE, ZgwCall
from fieldpost.front.zgw.faults import HEADERS, fault, http_fault, internal_fault
from fieldpost.front.zgw.routes import ROUTES, ZgwRoute

log = structlog.get_logger()

JSON = "application/json"


class ZgwApi:
    """The routes of the API, as endpoints of one application."""

    def __init__(self, backend: Backend, options: ZgwOptions, clock: Clock) -> None:
        self._backend = backend
        self._options = options
        self._clock = clock
        self._documents = DocumentAllowances(backend.options, clock)
        self._patterns = {route.path: compile_path(route.path)[0] for route in ROUTES}

    def add_to(self, app: Starlette) -> None:
        for route in ROUTES:
            app.router.routes.append(HttpRoute(route.path, self._endpoint(route), methods=[route.method]))

    def serves(self, path: str) -> bool:
        return path == BASE or path.startswith(f"{BASE}/")

    def http_fault(self, status: int, path: str) -> Response:
        """The response for an unknown path or method; a known path has the header Allow."""
        methods = {route.method for route in ROUTES if self._patterns[route.path].fullmatch(path)}
        allowed = sorted(methods | ({"HEAD"} if "GET" in methods else set()))
        return http_fault(status, {"Allow": ", ".join(allowed)} if allowed else {})

    def _endpoint(self, route: ZgwRoute) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                if route.access:
                    client = await self._client(route, request)
                else:
                    client = None
                    self._documents.take(request.client.host if request.client else "")
                call = ZgwCall(request, self._backend, self._options, self._clock, client)
                call.query(*route.query)
                return _response(route, await route.handler(call))
            except Denied as error:
                await self._note(route, request, error)
                return fault(error)
            except FieldpostError as error:
                return fault(error)
            except Exception as error:
                # Not left to the guard: clients read errors of this API in its format only.
                return internal_fault(report_bug(error, path=request.url.path, method=route.method))

        return endpoint

    async def _client(self, route: ZgwRoute, request: Request) -> ZgwClient:
        client = await self._backend.operate.zgw_clients.by_token(bearer(request.headers))
        authenticated(request.scope.get("state"))
        if not set(route.access) & set(client.scopes):
            needed = " or ".join(scope.full_name for scope in route.access)
            denied = refuse("permission_denied", f"this needs the scope {needed}")
            denied.actor = client.client_id
            raise denied
        return client

    async def _note(self, route: ZgwRoute, request: Request, error: Denied) -> None:
        address = request.client.host if request.client else ""
        code = error.audit_code if isinstance(error, RefusedToken) else error.code
        log.warning("call.denied", method=route.method, path=request.url.path, code=code, address=address)
        if error.code != REQUIRED:  # a caller without any token claims nothing
            noted = Denied(code, f"{error.message} ({code})")
            await self._backend.operate.refusals.note(noted, f"{route.method} {route.path}", error.actor, address)


def _response(route: ZgwRoute, result: object) -> Response:
    match result:
        case Response():
            result.headers.update(HEADERS)
            return result
        case None:
            return Response(status_code=route.status, headers=HEADERS)
        case bytes():
            return Response(result, route.status, HEADERS, JSON)
        case dict() if route.status == 201:
            headers = {**HEADERS, "Location": str(result["url"])}
            return Response(msgspec.json.encode(result), route.status, headers, JSON)
        case _:
            return Response(msgspec.json.encode(result), route.status, HEADERS, JSON)
