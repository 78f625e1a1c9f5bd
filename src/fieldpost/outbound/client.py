"""The guarded HTTP client: requests to URLs that users configure.

Theory of operation. The URL is parsed once. For every new connection the guard resolves and checks its host, and the
socket is connected to a checked address; TLS and the Host header keep the name. No redirects, proxy variables, cookies
or decompression. One deadline covers everything from waiting for a connection to the last byte of the response, of
which at most `answer_bytes_max` bytes are read. Requests in progress are limited in total and per host.

With `[outbound] proxy` every connection is a tunnel through it (`proxy.py`). The proxy resolves names then; a host that
is written as an address is checked as before.

A failure names the phase in which it happened (`HttpPhase`), so that the caller can distinguish a problem on our side
(no connection free, name not resolved) from one of the server.

The client speaks HTTP/1.1 itself, which costs half of what aiohttp's client with hooks for phases and limits did (ADR
0048).
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address

from yarl import URL

from fieldpost.core.frozen import frozen
from fieldpost.outbound.answer_parser import AnswerParser, InvalidAnswer
from fieldpost.outbound.connect import connect
from fieldpost.outbound.connection import ConnectionKey, ConnectionPool, HttpConnection
from fieldpost.outbound.guard import AddressGuard
from fieldpost.outbound.options import OutboundOptions, ProxyServer
from fieldpost.outbound.progress import HttpPhase
from fieldpost.outbound.proxy import TunnelRefused, open_tunnel
from fieldpost.system_error import reason_of

ANSWER_BYTES_MAX = 64 * 1024
_BODILESS_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "DELETE")
_DEFAULTS = {
    "accept": "Accept: */*\r\n",
    "accept-encoding": "Accept-Encoding: identity\r\n",
    "user-agent": "User-Agent: Fieldpost\r\n",
}


@frozen
class HttpAnswer:
    """The response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """At most `answer_bytes_max` bytes."""
    is_whole: bool
    """False if the body was cut off at the limit or by the server; the status is valid in any case."""


class NoAnswer(Exception):
    """No status line arrived. `phase`: the phase that failed; `is_timeout`: because the deadline passed.

    `is_sent`: the whole request was sent, so the server may have processed it. `is_stale`: a reused connection turned
    out to be closed, which shows nothing about the server's current state.
    """

    def __init__(
        self, reason: str, phase: HttpPhase, *, is_sent: bool, is_timeout: bool = False, is_stale: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.phase = phase
        self.is_sent = is_sent
        self.is_timeout = is_timeout
        self.is_stale = is_stale


class HttpClient:
    """Sends requests under one guard. Keeps connections open for reuse until `close`."""

    def __init__(
        self,
        guard: AddressGuard,
        tls_context: ssl.SSLContext | None = None,
        options: OutboundOptions | None = None,
    ) -> None:
        options = options or OutboundOptions()
        self._guard = guard
        self._proxy = options.proxy_server()
        self._proxy_guard = guard.for_administrator()
        self._tls_context = tls_context
        self._slots = RequestSlots(options.connections, options.connections_per_host)
        self._pool = ConnectionPool()

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
        ends_at = asyncio.get_running_loop().time() + timeout_s
        host = url.raw_host or ""
        head = _head(method, url, headers, body)
        try:
            await self._slots.take(host, ends_at)
        except TimeoutError:
            raise _late(HttpPhase.QUEUE, timeout_s) from None
        try:
            key = (url.scheme, host, url.port or 0)
            connection = self._pool.take(key)
            is_reused = connection is not None
            if connection is None:
                connection = await self._connect(key, ends_at, timeout_s)
            parser = AnswerParser(answer_bytes_max, has_body=method != "HEAD")
            await self._exchange(connection, head, body, parser, ends_at)
        finally:
            self._slots.give_back(host)
        if parser.status is None:
            raise _unanswered(connection, timeout_s, is_reused=is_reused)
        return HttpAnswer(parser.status, parser.headers, bytes(parser.body), parser.is_whole)

    async def check_hosts(self, host: str, field: str) -> None:
        """Raise InvalidInput if the host of a configured URL is denied or does not exist; a proxy resolves names."""
        if self._proxy is None or is_literal(host):
            await self._guard.check_hosts(host, field)

    async def close(self) -> None:
        await self._pool.close()

    async def _exchange(
        self, connection: HttpConnection, head: bytes, body: bytes, parser: AnswerParser, ends_at: float
    ) -> None:
        timer = asyncio.get_running_loop().call_at(ends_at, connection.expire)
        try:
            await connection.send(head, body, parser)
        finally:
            timer.cancel()
            if connection.release():
                self._pool.put(connection)

    async def _connect(self, key: ConnectionKey, ends_at: float, timeout_s: float) -> HttpConnection:
        scheme, host, port = key
        phase = HttpPhase.CONNECT if is_literal(host) else HttpPhase.RESOLVE
        tls = self._tls() if scheme == "https" else None
        try:
            async with asyncio.timeout_at(ends_at) as deadline:
                if self._proxy is not None:
                    phase = HttpPhase.PROXY
                    made = await self._tunnel(self._proxy, host, port)
                else:
                    addresses = await self._guard.addresses(host, port)
                    phase = HttpPhase.CONNECT
                    made = await connect(addresses, port)
                phase = HttpPhase.TLS if tls is not None else HttpPhase.CONNECT
                try:
                    _, connection = await asyncio.get_running_loop().create_connection(
                        lambda: self._pool.make(key),
                        sock=made,
                        ssl=tls,
                        server_hostname=host.rstrip(".") if tls is not None else None,
                    )
                except BaseException:
                    made.close()
                    raise
                return connection
        except (OSError, ValueError) as error:  # including TimeoutError, which may be the operating system's
            if deadline.expired():
                raise _late(phase, timeout_s) from None
            raise NoAnswer(_reason(error, phase, f"{host}:{port}"), phase, is_sent=False) from None
        except TunnelRefused as refused:
            phase = HttpPhase.CONNECT if refused.is_unreachable else HttpPhase.PROXY
            raise NoAnswer(f"no connection: {refused}", phase, is_sent=False) from None

    async def _tunnel(self, proxy: ProxyServer, host: str, port: int) -> socket.socket:
        if is_literal(host):
            await self._guard.addresses(host, port)
        made = await connect(await self._proxy_guard.addresses(proxy.host, proxy.port), proxy.port)
        try:
            await open_tunnel(made, proxy, host, port)
        except BaseException:
            made.close()
            raise
        return made

    def _tls(self) -> ssl.SSLContext:
        return self._tls_context or _default_tls()


class RequestSlots:
    """Limits the requests in progress, in total and per host; further ones wait in order."""

    def __init__(self, total: int, per_host: int) -> None:
        self._total = asyncio.Semaphore(total)
        self._per_host = per_host
        self._hosts: dict[str, asyncio.Semaphore] = {}
        self._requests: Counter[str] = Counter()
        """Waiting and in progress, by host."""

    async def take(self, host: str, ends_at: float) -> None:
        """Raises TimeoutError if there is no slot until then, by the time of the event loop."""
        semaphore = self._hosts.get(host)
        if semaphore is None:
            semaphore = self._hosts[host] = asyncio.Semaphore(self._per_host)
        self._requests[host] += 1
        try:
            if semaphore.locked() or self._total.locked():
                async with asyncio.timeout_at(ends_at):
                    await self._acquire(semaphore)
            else:
                await self._acquire(semaphore)
        except BaseException:
            self._leave(host)
            raise

    def give_back(self, host: str) -> None:
        self._total.release()
        self._hosts[host].release()
        self._leave(host)

    async def _acquire(self, semaphore: asyncio.Semaphore) -> None:
        await semaphore.acquire()
        try:
            await self._total.acquire()
        except BaseException:
            semaphore.release()
            raise

    def _leave(self, host: str) -> None:
        self._requests[host] -= 1
        if not self._requests[host]:
            del self._requests[host], self._hosts[host]


def _head(method: str, url: URL, headers: Mapping[str, str], body: bytes) -> bytes:
    """The head of a request. Raises NoAnswer if a header would break it."""
    given = "".join([f"{name}: {text}\r\n" for name, text in headers.items()])
    if given.count("\n") != len(headers) or given.count("\r") != len(headers) or "\0" in given:
        raise NoAnswer("a header contains a line break", HttpPhase.QUEUE, is_sent=False)
    missing = dict(_DEFAULTS)
    for name in headers:
        missing.pop(name.lower(), None)
    length = f"Content-Length: {len(body)}\r\n" if body or method not in _BODILESS_METHODS else ""
    return "".join((_first_lines(method, url), given, *missing.values(), length, "\r\n")).encode()


@lru_cache(maxsize=4096)
def _first_lines(method: str, url: URL) -> str:
    return f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"


@lru_cache(maxsize=1)
def _default_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=4096)
def is_literal(host: str) -> bool:
    """Whether a host is an address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _unanswered(connection: HttpConnection, timeout_s: float, *, is_reused: bool) -> NoAnswer:
    phase = HttpPhase.ANSWER if connection.is_sent else HttpPhase.SEND
    match connection.failure:
        case TimeoutError():
            return _late(phase, timeout_s, is_sent=connection.is_sent)
        case InvalidAnswer() as error:
            return NoAnswer(f"the answer is not valid HTTP: {error}", phase, is_sent=connection.is_sent)
        case error:
            reason = "the server closed the connection" if error is None else _text(error)
            return NoAnswer(reason, phase, is_sent=connection.is_sent, is_stale=is_reused)


def _late(phase: HttpPhase, timeout_s: float, *, is_sent: bool = False) -> NoAnswer:
    return NoAnswer(f"{_TIMEOUTS[phase]} within {timeout_s:g} s", phase, is_sent=is_sent, is_timeout=True)


def _reason(error: Exception, phase: HttpPhase, server: str) -> str:
    return f"{_FAILURES.get(phase) or f'no connection to {server}'}: {_text(error)}"


def _text(error: Exception) -> str:
    match error:
        case ssl.SSLError() | socket.gaierror():
            return str(error) if isinstance(error, ssl.SSLCertVerificationError) else error.strerror or str(error)
        case OSError(errno=int()):
            return reason_of(error)
        case _:
            return str(error) or "the server closed the connection"


_TIMEOUTS = {
    HttpPhase.QUEUE: "no free connection",
    HttpPhase.PROXY: "no answer from the proxy",
    HttpPhase.RESOLVE: "no answer from the name server",
    HttpPhase.CONNECT: "no connection",
    HttpPhase.TLS: "no TLS handshake",
    HttpPhase.SEND: "the request was not sent",
    HttpPhase.ANSWER: "no answer",
}
_FAILURES = {
    HttpPhase.PROXY: "no connection to the proxy",
    HttpPhase.RESOLVE: "name resolution failed",
    HttpPhase.TLS: "TLS handshake failed",
}
