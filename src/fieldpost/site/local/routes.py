"""The routes of the local API, in one table. The OpenAPI document is generated from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from fieldpost.site.local.handlers import EVENT_QUERY, Handlers
from fieldpost.site.local.schemas import (
    CallView,
    DatabaseWriteBody,
    EventPage,
    ExternalCallBody,
    LocalCallPage,
    LocalSiteView,
    NotificationView,
    Send,
    SentNotification,
)


@dataclass(frozen=True, slots=True)
class LocalRoute:
    """One route. `takes` is the struct of the request body, `gives` that of the response."""

    method: str
    path: str
    handler: Callable[[Handlers, web.Request], Awaitable[msgspec.Struct]]
    gives: type[msgspec.Struct]
    takes: type[msgspec.Struct] | None = None
    query: tuple[str, ...] = ()
    status: int = 200

    @property
    def name(self) -> str:
        return str(getattr(self.handler, "__name__", ""))

    def bound(self, handlers: Handlers) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler for aiohttp."""

        async def serve(request: web.Request) -> web.Response:
            return _json(await self.handler(handlers, request), self.status)

        return serve


ROUTES: tuple[LocalRoute, ...] = (
    LocalRoute("POST", "/v1/notifications", Handlers.send, SentNotification, Send, status=201),
    LocalRoute("GET", "/v1/notifications/{notification_id}", Handlers.notification, NotificationView),
    LocalRoute("POST", "/v1/external/{system}/calls", Handlers.call, CallView, ExternalCallBody, status=201),
    LocalRoute("POST", "/v1/databases/{connection}/writes", Handlers.write, CallView, DatabaseWriteBody, status=201),
    LocalRoute("GET", "/v1/calls", Handlers.cached_calls, LocalCallPage, query=("after", "limit")),
    LocalRoute("GET", "/v1/calls/{call_id}", Handlers.cached_call, CallView),
    LocalRoute("GET", "/v1/events", Handlers.events, EventPage, query=EVENT_QUERY),
    LocalRoute("GET", "/v1/site", Handlers.site, LocalSiteView),
)


def _json(body: Any, status: int) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
