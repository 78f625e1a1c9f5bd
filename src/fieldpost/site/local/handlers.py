"""The handlers of the local API: one thin function per route, run on a worker thread, over `Site`.

A handler's docstring is its description in the OpenAPI document.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from aiohttp import web

import fieldpost
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.core.times import to_text
from fieldpost.link.codec import check_json
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.event_query import FIELDS, event_filter
from fieldpost.site.config.folder import Folder
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.local.guard import read_json
from fieldpost.site.local.schemas import (
    CallView,
    DatabaseWriteBody,
    EventPage,
    ExternalCallBody,
    LinkView,
    LocalCallPage,
    LocalSiteView,
    NotificationView,
    Send,
    SentNotification,
    call_view,
    event_view,
    notification_view,
)
from fieldpost.site.site import Site

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
THREADS = 16
WAITING_MAX = 64
"""How many calls, writes and status queries may wait for a thread; further ones get 503."""

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)


class Handlers:
    """The handlers of one site. Requests that need only the buffer never wait behind a slow external system."""

    def __init__(self, folder: Folder, site: Site, buffer: Buffer, health: Callable[[], ForwardHealth]) -> None:
        self._folder = folder
        self._site = site
        self._buffer = buffer
        self._health = health
        self._quick = ThreadPoolExecutor(THREADS // 2, thread_name_prefix="fieldpost-local")
        self._slow = ThreadPoolExecutor(THREADS, thread_name_prefix="fieldpost-local-slow")
        self._waiting = 0

    def close(self) -> None:
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)

    async def send(self, request: web.Request) -> SentNotification:
        """Send a notification. The response means that it is on this machine's disk; it does not wait for central."""
        body = await _read(request, Send)

        def work() -> SentNotification:
            given = _provenance(body)
            return SentNotification(self._site.notify.to(body.list_name).send(body.subject, body.body, **given))

        return await self._run(self._quick, work)

    async def notification(self, request: web.Request) -> NotificationView:
        """The status of a notification: from this site while it is in the buffer, from central after that."""
        notification_id = request.match_info["notification_id"]
        return await self._run_slowly(lambda: notification_view(self._site.notify.status(notification_id)))

    async def call(self, request: web.Request) -> CallView:
        """Call an external system that `site.toml` defines. The call is buffered first and attempted immediately.

        The status is `delivered`, or `retrying` if the agent will retry the call. If the system refuses it for good,
        the response is a problem with status 502.
        """
        body = await _read(request, ExternalCallBody)
        system = request.match_info["system"]

        def work() -> CallView:
            call_id = self._site.external(system).call(
                body.method,
                body.path,
                query=body.query,
                headers=body.headers,
                json=body.json,
                body=_content(body),
                **_provenance(body),
            )
            return call_view(self._site.tracking.status(call_id))

        return await self._run_slowly(work)

    async def write(self, request: web.Request) -> CallView:
        """Write to a database that `site.toml` defines. The write is buffered first and attempted immediately."""
        body = await _read(request, DatabaseWriteBody)
        connection = request.match_info["connection"]

        def work() -> CallView:
            given = _provenance(body)
            call_id = self._site.database(connection).write(body.statement, body.parameters, **given)
            return call_view(self._site.tracking.status(call_id))

        return await self._run_slowly(work)

    async def cached_call(self, request: web.Request) -> CallView:
        """The status of an external call or database write. Never needs central."""
        call_id = request.match_info["call_id"]
        return await self._run(self._quick, lambda: call_view(self._site.tracking.status(call_id)))

    async def cached_calls(self, request: web.Request) -> LocalCallPage:
        """External calls and database writes by last change, starting after the change sequence `after`."""
        query = _query(request, "after", "limit")
        after, limit = _whole(query, "after", 0, 1 << 62), _limit(query)

        def work() -> LocalCallPage:
            found = self._site.tracking.changed_since(after, limit)
            return LocalCallPage([call_view(one) for one in found], found[-1].change_sequence if found else after)

        return await self._run(self._quick, work)

    async def events(self, request: web.Request) -> EventPage:
        """The site's event log, newest first. All `words` must occur in the text of an entry."""
        query = _query(request, *EVENT_QUERY)
        wanted, limit = event_filter({name: value for name, value in query.items() if name in FIELDS}), _limit(query)
        before = _whole(query, "before", 0, 1 << 62) or None

        def work() -> EventPage:
            found = self._buffer.read(lambda cursor: event_log.query(cursor, wanted, before=before, limit=limit))
            return EventPage([event_view(one) for one in found], found[-1].sequence if len(found) == limit else None)

        return await self._run(self._quick, work)

    async def site(self, request: web.Request) -> LocalSiteView:
        """The state of this site: waiting messages, their age, and the link to central."""
        _query(request)

        def work() -> LocalSiteView:
            depth = self._buffer.depth()
            health = self._health()
            oldest = depth.oldest_created_at
            return LocalSiteView(
                site=self._folder.name,
                central_url=self._folder.central_url,
                version=fieldpost.__version__,
                waiting={category.value: count for category, count in depth.waiting.items()},
                parked=sum(count for status, count in self._site.tracking.counts().items() if status == "parked"),
                rejected=depth.rejected,
                oldest_created_at=None if oldest is None else to_text(oldest),
                link=LinkView(
                    is_ok=health.is_ok,
                    error_code=health.error_code,
                    error=health.error,
                    failing_since=None if health.failing_since is None else to_text(health.failing_since),
                    last_ok_at=None if health.last_ok_at is None else to_text(health.last_ok_at),
                ),
            )

        return await self._run(self._quick, work)

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    async def _run_slowly(self, work: Callable[[], T]) -> T:
        with self._place():
            return await self._run(self._slow, work)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._waiting >= WAITING_MAX:
            raise Unavailable(
                "local.busy", f"{WAITING_MAX} calls are already in progress", hint="try again in a moment"
            )
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


EVENT_QUERY = (*FIELDS, "before", "limit")


async def _read(request: web.Request, kind: type[B]) -> B:
    """The JSON body as this struct, or InvalidInput naming the field."""
    data = await read_json(request)
    check_json(data)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        at = re.search(r"at `\$\.?([^`]*)`", str(error))
        named = re.search(r"field `([^`]*)`", str(error))
        field = next((found[1] for found in (at, named) if found and found[1]), None)
        raise InvalidInput("body.invalid", f"the body is invalid: {error}", field=field) from None


def _provenance(body: Any) -> dict[str, Any]:
    return {name: getattr(body, name) for name in ("key", "instance", "script", "execution_id", "parent_execution_id")}


def _content(body: ExternalCallBody) -> str | bytes | None:
    if body.body_base64 is None:
        return body.body
    if body.body is not None:
        raise InvalidInput("call.body", "body and body_base64 cannot both be given", field="body_base64")
    try:
        return base64.b64decode(body.body_base64, validate=True)
    except binascii.Error:
        raise InvalidInput("call.body", "body_base64 is not base64", field="body_base64") from None


def _query(request: web.Request, *known: str) -> dict[str, str]:
    """The query parameters. Raises InvalidInput for an unknown or repeated one."""
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known:
            raise InvalidInput("query.unknown", f"unknown query parameter {name[:64]!r}", field=name[:64])
        if name in given:
            raise InvalidInput("query.twice", f"{name} is given twice", field=name)
        given[name] = value
    return given


def _limit(query: Mapping[str, str]) -> int:
    return _whole(query, "limit", 1, LIMIT_MAX) if "limit" in query else LIMIT_DEFAULT


def _whole(query: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = query.get(name, str(low))
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and low <= int(text) <= high):
        raise InvalidInput(f"{name}.range", f"{name} must be a whole number from {low} to {high}", field=name)
    return int(text)
