"""Endpoints from route tables: authenticate the caller, run the handler, encode the answer or the problem."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as HttpRoute
from starlette.routing import WebSocketRoute, compile_path
from starlette.websockets import WebSocket

from fieldpost.core.actor import Actor
from fieldpost.core.errors import Denied, FieldpostError
from fieldpost.core.sites.node import SiteNode
from fieldpost.front import auth
from fieldpost.front.admission import authenticated
from fieldpost.front.auth import Access
from fieldpost.front.backend import Backend
from fieldpost.front.http.call import NO_SPEC, ApiAnswer, ApiRoute, Call, FileAnswer, Stream
from fieldpost.front.http.problems import problem
from fieldpost.link.http.endpoint_spec import JSON
from fieldpost.link.http.view import View

log = structlog.get_logger()

Socket = Callable[[WebSocket, Backend], Awaitable[None]]


class RouteTable:
    """Tables of routes and WebSockets, served as endpoints of one application."""

    def __init__(self, routes: Sequence[ApiRoute], sockets: Mapping[str, Socket]) -> None:
        self._routes = routes
        self._sockets = sockets
        self._plain = {route.path for route in routes if "{" not in route.path}
        self._patterns = {route.path: compile_path(route.path)[0] for route in routes}

    def add_to(self, app: Starlette, backend: Backend) -> None:
        """Serve every route and WebSocket of the table."""
        for route in self._routes:
            endpoint = _endpoint(route, backend, self._plain)
            app.router.routes.append(HttpRoute(route.path, endpoint, methods=[route.method]))
        for path, serve in self._sockets.items():
            app.router.routes.append(WebSocketRoute(path, _socket(serve, backend)))

    def allowed(self, path: str) -> str:
        """The methods of this path for the header Allow. The most specific matching path counts."""
        fitting = [known for known, pattern in self._patterns.items() if pattern.fullmatch(path)]
        closest = max(fitting, key=lambda known: len(re.sub(r"\{[^}]*\}", "", known)))
        methods = {route.method for route in self._routes if route.path == closest}
        return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def _endpoint(route: ApiRoute, backend: Backend, plain: set[str]) -> Callable[[Request], Awaitable[Response]]:

    async def endpoint(request: Request) -> Response:
        if route.path != request.url.path in plain:
            # A fixed path that the pattern of another route happens to match: answer 405 instead.
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            call = Call(request, backend, await _caller(route.access, request, backend), route.spec or NO_SPEC)
            if route.spec is not None:
                call.query()
            return _response(call, await route.handler(call))
        except Denied as error:
            address = request.client.host if request.client else ""
            log.warning("call.denied", method=route.method, path=request.url.path, code=error.code, address=address)
            if error.code != auth.REQUIRED:  # a caller without any token claims nothing
                await backend.operate.refusals.note(error, f"{route.method} {route.path}", error.actor, address)
            return problem(error)
        except FieldpostError as error:
            return problem(error)

    return endpoint


def _socket(serve: Socket, backend: Backend) -> Callable[[WebSocket], Awaitable[None]]:
    async def socket(websocket: WebSocket) -> None:
        await serve(websocket, backend)

    return socket


async def _caller(access: Access, request: Request, backend: Backend) -> Actor | SiteNode | str | None:
    match access:
        case Access.ANYONE:
            return None
        case Access.SITE:
            sender = await auth.site_node(request.headers, backend.operate.accounts)
            authenticated(request.scope.get("state"), is_site=True)
            return sender
        case Access.JOIN:
            return auth.code(request.headers)
        case _:
            actor = await auth.program(request.headers, backend.operate.accounts)
            authenticated(request.scope.get("state"))
            actor.require(*access.roles)
            return actor


def _response(call: Call, result: object) -> Response:
    answer = result if isinstance(result, ApiAnswer) else ApiAnswer(result)
    status, headers = answer.status or call.spec.status, dict(answer.headers)
    view = answer.view or call.spec.answer
    match answer.body:
        case Stream() as stream:
            return StreamingResponse(stream.pieces, status, headers, stream.media_type)
        case FileAnswer() as file:
            return Response(file.content, status, headers, file.media_type)
        case value if isinstance(view, View):
            return Response(msgspec.json.encode(view.encode(value, call.role)), status, headers, JSON)
        case None:
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        case value:
            return Response(msgspec.json.encode(value), status, headers, JSON)
