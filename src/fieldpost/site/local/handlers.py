"""The handlers of the local API: one thin function per route, run on a worker thread, over `Site`.

A handler's docstring is its description in the OpenAPI document.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from aiohttp import web

import fieldpost
from fieldpost.core.errors import Conflict, InvalidInput, Unavailable
from fieldpost.core.search.filters import SITE_EVENT_FILTERS
from fieldpost.core.sites.message import CallRecord
from fieldpost.link.http.body import decode_body
from fieldpost.link.http.endpoint_spec import Parameter, filter_parameters, spec
from fieldpost.site.buffer import event_queries
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.event_queries import SiteEventFilter
from fieldpost.site.config.folder import Folder
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.local.guard import read_json
from fieldpost.site.local.schemas import (
    CALL,
    CALLS,
    COMPARED,
    EVENTS,
    NOTIFICATION,
    PAIR,
    SENT,
    SITE,
    DatabaseWriteBody,
    ExternalCallBody,
    LocalCalls,
    LocalEvents,
    LocalState,
    Promotion,
    Send,
    Sent,
)
from fieldpost.site.notify import NotificationStatus
from fieldpost.site.pair.node import PairNodeTask
from fieldpost.site.pair.pair_status import ComparedRows, PairStatus, live_status
from fieldpost.site.site import Site

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
THREADS = 16
WAITING_MAX = 64
"""How many calls, writes and status queries may wait for a thread; further ones get 503."""

CURSOR = {"type": "integer", "minimum": 0}
LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "Page size"
)

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)


class Handlers:
    """The handlers of one site. Requests that need only the buffer never wait behind a slow external system."""

    def __init__(
        self,
        folder: Folder,
        site: Site,
        buffer: Buffer,
        health: Callable[[], ForwardHealth],
        pair: PairNodeTask | None = None,
    ) -> None:
        self._pair = pair
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

    @spec(SENT, 201, body=Send, problems=(409,))
    async def send(self, request: web.Request) -> Sent:
        """Send a notification. The response means that it is on this machine's disk; it does not wait for central."""
        body = await _read(request, Send)

        def work() -> Sent:
            sender = self._site.notify.to(body.list_name)
            given = {name: getattr(body, name) for name in ("severity", "incident", "is_cleared")}
            return Sent(sender.send(body.subject, body.body, **given, **_provenance(body)))

        return await self._run(self._quick, work)

    @spec(NOTIFICATION)
    async def notification(self, request: web.Request) -> NotificationStatus:
        """The status of a notification: from this site while it is in the buffer, from central after that."""
        notification_id = request.match_info["notification_id"]
        return await self._run_slowly(lambda: self._site.notify.status(notification_id))

    @spec(CALL, 201, body=ExternalCallBody, problems=(409, 502))
    async def call(self, request: web.Request) -> CallRecord:
        """Call an external system that `site.toml` defines. The call is buffered first and attempted immediately.

        The status is `delivered`, or `retrying` if the agent will retry the call. If the system refuses it for good,
        the response is a problem with status 502.
        """
        body = await _read(request, ExternalCallBody)
        system = request.match_info["system"]

        def work() -> CallRecord:
            call_id = self._site.external(system).call(
                body.method,
                body.path,
                query=body.query,
                headers=body.headers,
                json=body.json,
                body=_content(body),
                **_provenance(body),
            )
            return self._site.tracking.status(call_id)

        return await self._run_slowly(work)

    @spec(CALL, 201, body=DatabaseWriteBody, problems=(409, 502))
    async def write(self, request: web.Request) -> CallRecord:
        """Write to a database that `site.toml` defines. The write is buffered first and attempted immediately."""
        body = await _read(request, DatabaseWriteBody)
        connection = request.match_info["connection"]

        def work() -> CallRecord:
            given = _provenance(body)
            call_id = self._site.database(connection).write(body.statement, body.parameters, **given)
            return self._site.tracking.status(call_id)

        return await self._run_slowly(work)

    @spec(CALL)
    async def cached_call(self, request: web.Request) -> CallRecord:
        """The status of an external call or database write. Never needs central."""
        call_id = request.match_info["call_id"]
        return await self._run(self._quick, lambda: self._site.tracking.status(call_id))

    @spec(CALLS, query=(Parameter("after", CURSOR, "Only changes after this change sequence"), LIMIT))
    async def cached_calls(self, request: web.Request) -> LocalCalls:
        """External calls and database writes by last change, starting after the change sequence `after`."""
        query = request.query
        after, limit = _whole(query, "after", 0, 1 << 62), _limit(query)

        def work() -> LocalCalls:
            found = self._site.tracking.changed_since(after, limit)
            return LocalCalls(found, found[-1].change_sequence if found else after)

        return await self._run(self._quick, work)

    @spec(
        EVENTS,
        query=(
            *filter_parameters(SITE_EVENT_FILTERS),
            Parameter("before", CURSOR, "Only events before this one"),
            LIMIT,
        ),
    )
    async def events(self, request: web.Request) -> LocalEvents:
        """The site's event log, newest first. All `words` must occur in the text of an entry."""
        query = request.query
        given = {field.name: query[field.name] for field in SITE_EVENT_FILTERS if field.name in query}
        wanted, limit = SiteEventFilter.parse(given), _limit(query)
        before = _whole(query, "before", 0, 1 << 62) or None

        def work() -> LocalEvents:
            found = self._buffer.read(lambda cursor: event_queries.query(cursor, wanted, before=before, limit=limit))
            return LocalEvents(found, found[-1].sequence if len(found) == limit else None)

        return await self._run(self._quick, work)

    @spec(SITE)
    async def site(self, request: web.Request) -> LocalState:
        """The state of this site: waiting messages, their age, and the link to central."""

        def work() -> LocalState:
            depth = self._buffer.depth()
            return LocalState(
                site=self._folder.name,
                central_url=self._folder.central_url,
                version=fieldpost.__version__,
                waiting={category.value: count for category, count in depth.waiting.items()},
                parked=sum(count for status, count in self._site.tracking.counts().items() if status == "parked"),
                rejected=depth.rejected,
                oldest_created_at=depth.oldest_created_at,
                link=self._health(),
                pair=self._pair_status(),
            )

        return await self._run(self._quick, work)

    @spec(PAIR, body=Promotion, problems=(409,))
    async def demote(self, request: web.Request) -> PairStatus:
        """Hand the leadership over to the other node: ends the calls in flight and waits until the copy is complete."""
        body = await _read(request, Promotion)
        await self._require_pair().demote(body.reason)
        return await self._required_status()

    @spec(PAIR, body=Promotion, problems=(409,))
    async def promote(self, request: web.Request) -> PairStatus:
        """Take over the leadership from the other node, which hands it over; `is_forced` takes it without that node."""
        body = await _read(request, Promotion)
        if body.is_forced and not body.reason.strip():
            raise InvalidInput("pair.reason", "reason is required with is_forced", field="reason")
        await self._require_pair().promote(reason=body.reason.strip(), is_forced=body.is_forced)
        return await self._required_status()

    @spec(COMPARED, problems=(409,))
    async def compare(self, request: web.Request) -> ComparedRows:
        """Compare rows with the other node by digests and copy ranges again that differ.

        The leader compares all rows, the standby its own notifications.
        """
        return await self._require_pair().compare()

    def _require_pair(self) -> PairNodeTask:
        if self._pair is None or self._pair.is_over:
            raise Conflict("pair.none", "this site has no pair")
        return self._pair

    async def _required_status(self) -> PairStatus:
        found = await self._run(self._quick, self._pair_status)
        if found is None:
            raise Conflict("pair.none", "this site has no pair")
        return found

    def _pair_status(self) -> PairStatus | None:
        health = None if self._pair is None else self._pair.health()
        return None if health is None else live_status(health, self._folder.pair.peer)

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


async def _read(request: web.Request, kind: type[B]) -> B:
    """The JSON body as this struct, or InvalidInput naming the field."""
    return decode_body(await read_json(request), kind)


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


def _limit(query: Mapping[str, str]) -> int:
    return _whole(query, "limit", 1, LIMIT_MAX) if "limit" in query else LIMIT_DEFAULT


def _whole(query: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = query.get(name, str(low))
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and low <= int(text) <= high):
        raise InvalidInput(f"{name}.range", f"{name} must be a whole number from {low} to {high}", field=name)
    return int(text)
