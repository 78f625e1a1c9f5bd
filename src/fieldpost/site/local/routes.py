"""The route table of the local API, and its OpenAPI document."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from fieldpost.link.http import openapi
from fieldpost.link.http.endpoint_spec import JSON, EndpointSpec, Route
from fieldpost.link.http.openapi import ApiInfo
from fieldpost.link.http.view import View
from fieldpost.site.local.handlers import Handlers

LocalRoute = partial(Route[None], access=None)

ROUTES: tuple[Route[None], ...] = (
    LocalRoute("POST", "/v1/notifications", Handlers.send),
    LocalRoute("GET", "/v1/notifications/{notification_id}", Handlers.notification),
    LocalRoute("POST", "/v1/external/{system}/calls", Handlers.call),
    LocalRoute("POST", "/v1/databases/{connection}/writes", Handlers.write),
    LocalRoute("GET", "/v1/calls", Handlers.cached_calls),
    LocalRoute("GET", "/v1/calls/{call_id}", Handlers.cached_call),
    LocalRoute("GET", "/v1/events", Handlers.events),
    LocalRoute("GET", "/v1/site", Handlers.site),
    LocalRoute("POST", "/v1/pair/demote", Handlers.demote),
    LocalRoute("POST", "/v1/pair/promote", Handlers.promote),
    LocalRoute("POST", "/v1/pair/compare", Handlers.compare),
)

INFO = ApiInfo(
    title="Fieldpost local API",
    description="The script API of a site over HTTP, for programs in any language on the same machine.",
    token="The content of the file local.token. Not needed on the Unix socket.",
    servers=({"url": "http://127.0.0.1:{port}", "variables": {"port": {"default": "8026"}}},),
    operation=lambda route: {"operationId": operation_id(route), "security": [{"token": []}]},
    problems=lambda _route: (401, 403),
)


def document() -> dict[str, Any]:
    """The OpenAPI document of the local API."""
    return openapi.document(ROUTES, INFO)


def operation_id(route: Route[None]) -> str:
    return str(getattr(route.handler, "__name__", ""))


def bound(route: Route[None], handlers: Handlers) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The aiohttp handler of a route."""
    spec = route.spec
    assert isinstance(spec, EndpointSpec)
    view = spec.answer
    assert isinstance(view, View)

    async def serve(request: web.Request) -> web.Response:
        spec.read_query(request.query.items())
        value = await route.handler(handlers, request)
        return web.Response(body=msgspec.json.encode(view.encode(value)), status=spec.status, content_type=JSON)

    return serve
