"""The table of routes made into endpoints: first who calls, then the handler, then the answer or the problem."""

from collections.abc import Awaitable, Callable

import msgspec
import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from fieldpost.core.actor import Actor
from fieldpost.core.errors import Denied, FieldpostError
from fieldpost.front import auth
from fieldpost.front.api.call import Answer, Call, Route, Text
from fieldpost.front.api.errors import problem
from fieldpost.front.api.routes import ROUTES, SOCKETS
from fieldpost.front.auth import Access
from fieldpost.front.rooms import Rooms

log = structlog.get_logger()


def add_routes(app: FastAPI, rooms: Rooms) -> None:
    """Serve the whole API over these rooms."""
    for route in ROUTES:
        app.router.routes.append(HttpRoute(route.path, _endpoint(route, rooms), methods=[route.method]))

    for path, serve in SOCKETS.items():
        app.router.routes.append(WebSocketRoute(path, _socket(serve, rooms)))


def _endpoint(route: Route, rooms: Rooms) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            caller = await _caller(route.access, request, rooms)
            return _response(await route.handler(Call(request, rooms, caller)))
        except Denied as error:
            log.warning("call.denied", method=route.method, path=request.url.path, code=error.code)
            return problem(error)
        except FieldpostError as error:
            return problem(error)

    return endpoint


def _socket(
    serve: Callable[[WebSocket, Rooms], Awaitable[None]], rooms: Rooms
) -> Callable[[WebSocket], Awaitable[None]]:
    async def socket(websocket: WebSocket) -> None:
        await serve(websocket, rooms)

    return socket


async def _caller(access: Access, request: Request, rooms: Rooms) -> Actor | str | None:
    match access:
        case Access.ANYONE:
            return None
        case Access.SITE:
            return await auth.site(request.headers, rooms.operate.accounts)
        case Access.JOIN:
            return auth.code(request.headers)
        case _:
            actor = await auth.program(request.headers, rooms.operate.accounts)
            actor.require(access.role)
            return actor


def _response(answer: Answer) -> Response:
    if answer.body is None:
        return Response(status_code=204, headers=dict(answer.headers))
    if isinstance(answer.body, Text):
        return Response(answer.body.content, answer.status, dict(answer.headers), answer.body.media_type)
    content = msgspec.json.encode(answer.body)
    return Response(content, answer.status, dict(answer.headers), "application/json")
