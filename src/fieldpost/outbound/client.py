"""The guarded HTTP client: requests to URLs that users configure.

Theory of operation. The URL is parsed once. For every new connection the guard resolves and checks its host; the
checked addresses are recorded for the request, and sockets are created only for them. The check is at socket creation
because literal addresses bypass the resolver and nothing bypasses that. No redirects, proxy variables, cookies or
decompression. One deadline covers everything from name resolution to the last byte of the response, of which at most
`answer_bytes_max` bytes are read.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from fieldpost.outbound.connect import STAGGER_S
from fieldpost.outbound.guard import AddressGuard, Blocked
from fieldpost.outbound.ranges import Address

ANSWER_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """At most `answer_bytes_max` bytes."""
    is_whole: bool
    """False if the body was cut off at the limit or by the server; the status is valid in any case."""


class NoAnswer(Exception):
    """No status line arrived in time. `is_sent`: the whole request was sent, so the server may have processed it.

    `is_stale`: a reused connection turned out to be closed, which shows nothing about the server's current state.
    """

    def __init__(self, reason: str, is_sent: bool, is_stale: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_sent = is_sent
        self.is_stale = is_stale


class HttpClient:
    """Sends requests under one guard. Keeps connections open for reuse until `close`."""

    def __init__(self, guard: AddressGuard, tls_context: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._tls_context = tls_context
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> HttpAnswer:
        """Send one request to a URL from `check_url`. Raises Blocked, NoAnswer."""
        sent = _Sent(bool(body))
        heard: _Heard | None = None
        permitted: set[Address] = set()
        token = _permitted.set(permitted)
        try:
            async with asyncio.timeout(timeout_s):
                await self._judge_literal(url, permitted)
                async with self._opened().request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    trace_request_ctx=sent,
                ) as response:
                    heard = _Heard(response)
                    await heard.read(answer_bytes_max)
                    return heard.answer()
        except TimeoutError:
            if heard is not None:
                return heard.answer()
            raise NoAnswer(f"no answer within {timeout_s:g} s", sent.is_whole) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if (blocked := _blocked(error)) is not None:
                raise blocked from None
            is_ended = isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError)
            raise NoAnswer(_reason(error), sent.is_whole, is_stale=sent.is_reused and is_ended) from None
        finally:
            _permitted.reset(token)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _judge_literal(self, url: URL, permitted: set[Address]) -> None:
        host = url.raw_host or ""
        try:
            address = ip_address(host)
        except ValueError:
            return
        self._guard.check(address, host)
        permitted.add(address)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_note_head)
            trace.on_request_chunk_sent.append(_note_body)
            trace.on_connection_reuseconn.append(_note_reuse)
            connector = aiohttp.TCPConnector(
                resolver=_JudgingResolver(self._guard),
                use_dns_cache=False,
                socket_factory=_make_socket,
                ssl=self._tls_context if self._tls_context is not None else True,
                limit=CONNECTIONS_MAX,
                happy_eyeballs_delay=STAGGER_S,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
                trace_configs=[trace],
                raise_for_status=False,
            )
        return self._session


class _JudgingResolver(AbstractResolver):
    """Returns only addresses that the guard has checked, and records them for the request."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await self._guard.addresses(host, port)
        except Blocked as blocked:
            raise _BlockedError(blocked) from None
        _permitted.get().update(found)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        pass


class _BlockedError(OSError):
    """Blocked as an OSError, which aiohttp passes on."""

    def __init__(self, blocked: Blocked) -> None:
        super().__init__(str(blocked))
        self.blocked = blocked


_permitted: ContextVar[set[Address]] = ContextVar("permitted")
"""The addresses checked for the current request; its child tasks see the same set."""


def _make_socket(address_info: Any) -> socket.socket:
    family, kind, protocol, _, sockaddr = address_info
    address = ip_address(str(sockaddr[0]).partition("%")[0])
    if address not in _permitted.get():
        raise _BlockedError(Blocked(str(address), "the address was not checked for this request"))
    return socket.socket(family, kind, protocol)


def _blocked(error: BaseException) -> Blocked | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _BlockedError):
            return seen.blocked
        seen = getattr(seen, "os_error", None) or seen.__cause__ or seen.__context__
    return None


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return str(error) or type(error).__name__


@dataclass(slots=True)
class _Sent:
    has_body: bool
    is_whole: bool = False
    is_reused: bool = False


async def _note_head(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    context.trace_request_ctx.is_whole = not context.trace_request_ctx.has_body


async def _note_body(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    # A body is one bytes object, so the first chunk is the whole body.
    context.trace_request_ctx.is_whole = True


async def _note_reuse(_session: object, context: SimpleNamespace, _parameters: object) -> None:
    context.trace_request_ctx.is_reused = True


class _Heard:
    """A response whose status is known, with the body received so far."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._body = bytearray()
        self._is_whole = False

    async def read(self, limit: int) -> None:
        """Read the body up to the limit; a body that ends early is kept as far as it was received."""
        with suppress(aiohttp.ClientError, ConnectionError):
            while len(self._body) <= limit:
                piece = await self._response.content.read(limit + 1 - len(self._body))
                if not piece:
                    self._is_whole = True
                    return
                self._body += piece
        del self._body[limit:]
        self._response.close()

    def answer(self) -> HttpAnswer:
        return HttpAnswer(self._response.status, self._response.headers, bytes(self._body), self._is_whole)
