"""The relay's client of central's HTTP API.

A publish has one of three ends: verdicts, no answer, or an unreachable central (no connection, 401, 403, 429, 5xx).
Central recognises a repeated event, so a request whose connection ended is sent again at once, on a new one: most met a
connection that had been closed while it was idle. A request that central refuses as a whole is halved until the refused
event is alone.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import msgspec

from fieldpost.core.errors import ConfigError
from fieldpost.core.events.event import EVENTS_MAX, REQUEST_BYTES_MAX
from fieldpost.core.events.relaying import PublishVerdict, split_by_bytes
from fieldpost.core.events.result import EventState
from fieldpost.link.endpoint import Endpoint
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.transactions import ClaimedRow
from fieldpost.system_error import reason_of

log = logging.getLogger("fieldpost.relay")

D = TypeVar("D")
CONNECT_S = 5.0
RESPONSE_BYTES_MAX = 32 * 1024 * 1024
BODY_BYTES_MAX = REQUEST_BYTES_MAX - 64 * 1024
"""Room for the frame of a request."""
ITEM_BYTES = 256
"""An event without its texts, at most."""
PAGE = 200
_REFUSED = (400, 409, 413, 422)


class CentralUnreachable(Exception):
    """Central cannot be asked now; the rows stay as they are."""

    def __init__(self, code: str, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.wait_s = wait_s
        """How long central asked to wait."""


class Unanswered(Exception):
    """The request was sent, and no usable answer came."""


class ConnectionEnded(Unanswered):
    """The connection ended before the answer."""


class RequestRefused(Exception):
    """Central refuses the request as a whole."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WireEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    event_id: str
    topic: str
    payload: msgspec.Raw
    action: str | None = None
    resource: str | None = None
    attributes: msgspec.Raw | None = None
    occurred_at: str | None = None
    correlation_id: str | None = None


class WireVerdict(msgspec.Struct, frozen=True):
    event_id: str
    verdict: str
    state: str | None = None
    code: str | None = None
    error: str | None = None


class _Verdicts(msgspec.Struct, frozen=True):
    results: list[WireVerdict]


class WireTarget(msgspec.Struct, frozen=True):
    address: str
    status: str
    cycle: int
    settled_at: str | None = None
    error: str | None = None


class WireNotification(msgspec.Struct, frozen=True):
    notification_id: str
    event_id: str
    list_name: str
    type: str
    subject: str
    status: str
    cycle: int
    ended_at: str
    error: str | None
    targets: list[WireTarget]


class WireResult(msgspec.Struct, frozen=True):
    event_id: str
    state: EventState


class WireResults(msgspec.Struct, frozen=True):
    events: list[WireResult]
    notifications: list[WireNotification]
    next_cursor: str | None
    as_of: str


class _Problem(msgspec.Struct, frozen=True):
    code: str = "central.error"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """The verdicts on the rows of a batch, in its order; `unreachable` if central became so on the way."""

    verdicts: list[PublishVerdict]
    unreachable: CentralUnreachable | None = None


@dataclass(slots=True)
class RelayClient:
    """A kept connection to central, with the relay's token."""

    options: RelayOptions
    _endpoint: Endpoint | None = None
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def publish(
        self, rows: Sequence[ClaimedRow], outbox: Mapping[str, Any], is_in_time: Callable[[], bool]
    ) -> PublishedRows:
        """Publish these rows in as few requests as fit. `is_in_time` says whether the claim still allows to send."""
        verdicts: list[PublishVerdict] = [PublishVerdict("later")] * len(rows)
        encoded: list[tuple[int, bytes]] = []
        for number, row in enumerate(rows):
            try:
                encoded.append((number, _encode(row)))
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
                verdicts[number] = PublishVerdict("rejected", None, "event.payload", f"not a JSON object: {error}")
        parts = split_by_bytes([len(one) + ITEM_BYTES for _, one in encoded], BODY_BYTES_MAX, EVENTS_MAX)
        state = msgspec.json.encode(outbox)
        for part in parts:
            chosen = [encoded[number] for number in part]
            if not is_in_time():
                break
            try:
                found = await self._publish_part([one for _, one in chosen], state)
            except CentralUnreachable as unreachable:
                return PublishedRows(verdicts, unreachable)
            for (number, _), verdict in zip(chosen, found, strict=True):
                verdicts[number] = verdict
        return PublishedRows(verdicts)

    async def results_since(self, ended_since: str, cursor: str | None = None) -> WireResults:
        """A page of notifications that ended since then."""
        query = {"ended_since": ended_since, "limit": str(PAGE)} | ({"cursor": cursor} if cursor else {})
        return _decode(await self._request("GET", "/api/v1/event-results", query=query), WireResults)

    async def results_of(self, ids: Sequence[str], cursor: str | None = None) -> WireResults:
        """The states of these events, and a page of their notifications that ended."""
        query = {"limit": str(PAGE)} | ({"cursor": cursor} if cursor else {})
        body = msgspec.json.encode({"event_ids": list(ids)})
        return _decode(await self._request("POST", "/api/v1/event-results", body, query), WireResults)

    async def report(self, outbox: Mapping[str, Any]) -> None:
        """Report the number and age of open rows."""
        await self._request("PUT", "/api/v1/outbox", msgspec.json.encode(outbox))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _publish_part(self, events: Sequence[bytes], outbox: bytes) -> list[PublishVerdict]:
        body = b'{"events":[' + b",".join(events) + b'],"outbox":' + outbox + b"}"
        try:
            try:
                content = await self._request("POST", "/api/v1/events", body)
            except ConnectionEnded:
                content = await self._request("POST", "/api/v1/events", body)
            found = _decode(content, _Verdicts).results
            if len(found) != len(events):
                raise Unanswered(f"central answered {len(events)} events with {len(found)} verdicts")
        except Unanswered as unanswered:
            return [PublishVerdict("unanswered", error=str(unanswered))] * len(events)
        except RequestRefused as refused:
            if len(events) == 1:
                return [PublishVerdict("rejected", None, refused.code, str(refused))]
            half = len(events) // 2
            first = await self._publish_part(events[:half], outbox)
            return first + await self._publish_part(events[half:], outbox)
        return [PublishVerdict(one.verdict, _state(one.state), one.code, one.error) for one in found]

    async def _request(
        self, method: str, path: str, body: bytes | None = None, query: Mapping[str, str] | None = None
    ) -> bytes:
        """The body of a successful answer. Raises CentralUnreachable, RequestRefused or Unanswered."""
        token = self._connected().token
        status, content, wait_s = await self._exchange(method, path, body, query)
        if status == 401 and self._read_endpoint().token != token:
            # The token was rotated, and its file has the new one.
            status, content, wait_s = await self._exchange(method, path, body, query)
        if 200 <= status < 300:
            return content
        problem = _problem(content)
        message = f"central answered {status}: {problem.detail or problem.code}"
        if status in _REFUSED:
            raise RequestRefused(problem.code, problem.detail or message)
        raise CentralUnreachable("relay.denied" if status in (401, 403) else "relay.unreachable", message, wait_s)

    async def _exchange(
        self, method: str, path: str, body: bytes | None, query: Mapping[str, str] | None
    ) -> tuple[int, bytes, float]:
        endpoint = self._connected()
        session = self._session
        if session is None:
            timeout = aiohttp.ClientTimeout(total=self.options.timeout_s, sock_connect=CONNECT_S)
            connector = aiohttp.TCPConnector(ssl=endpoint.tls() or True)
            session = self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False)
        headers = {"Authorization": endpoint.authorization, "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with session.request(
                method, endpoint.at(path), params=query, data=body, headers=headers, allow_redirects=False
            ) as response:
                content = await _read(response)
                return response.status, content, _wait_s(response.headers.get("Retry-After"))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise CentralUnreachable(
                "relay.unreachable", f"cannot connect to central: {reason_of(getattr(error, 'os_error', error))}"
            ) from None
        except TimeoutError:
            raise Unanswered(f"central did not answer within {self.options.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionEnded(f"central did not answer: {reason_of(error)}") from None

    def _connected(self) -> Endpoint:
        return self._endpoint or self._read_endpoint()

    def _read_endpoint(self) -> Endpoint:
        try:
            self._endpoint = self.options.endpoint()
        except ConfigError as error:
            raise CentralUnreachable("relay.denied", str(error)) from None
        return self._endpoint


def _encode(row: ClaimedRow) -> bytes:
    """The event as JSON, its payload as it is.

    Any program may have written the row. Raises DecodeError, RecursionError or UnicodeEncodeError for texts that are
    not JSON objects, are nested too deeply or are not UTF-8.
    """
    payload = row.payload.encode()
    msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    attributes = row.attributes.encode() if row.attributes is not None else None
    if attributes is not None:
        msgspec.json.decode(attributes, type=dict[str, str])
    return msgspec.json.encode(
        WireEvent(
            event_id=row.event_id,
            topic=row.event_type,
            payload=msgspec.Raw(payload),
            action=row.action,
            resource=row.resource,
            attributes=msgspec.Raw(attributes) if attributes is not None else None,
            occurred_at=row.occurred_at,
            correlation_id=row.correlation_id,
        )
    )


def _decode(content: bytes, kind: type[D]) -> D:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise Unanswered(f"central's answer is not usable: {error}") from None


def _problem(content: bytes) -> _Problem:
    try:
        return msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        return _Problem()


def _state(text: str | None) -> EventState | None:
    return EventState(text) if text in list(EventState) else None


def _wait_s(header: str | None) -> float:
    return float(header) if header and header.isascii() and header.isdecimal() and len(header) < 6 else 0.0


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            raise Unanswered(f"central's answer is longer than {RESPONSE_BYTES_MAX} bytes")
    return bytes(content)
