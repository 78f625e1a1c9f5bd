"""The guarded HTTP client: requests to URLs that users configure.

Theory of operation. The URL is parsed once. For every new connection the guard resolves and checks its host; the
checked addresses are recorded for the request, and sockets are created only for them. The check is at socket creation
because literal addresses bypass the resolver and nothing bypasses that. No redirects, proxy variables, cookies or
decompression. One deadline covers everything from waiting for a connection to the last byte of the response, of which
at most `answer_bytes_max` bytes are read. Connections are limited in total and per host.

A failure names the phase in which it happened (`HttpPhase`), so that the caller can distinguish a problem on our side
(no connection free, name not resolved) from one of the server.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

import aiohttp
from yarl import URL

from fieldpost.outbound.connector import GuardedConnector, HostSlots, blocked_in
from fieldpost.outbound.guard import AddressGuard
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.progress import HttpPhase, RequestProgress, current_progress, trace_config
from fieldpost.outbound.ranges import Address

ANSWER_BYTES_MAX = 64 * 1024


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
        self._guard = guard
        self._tls_context = tls_context
        self._options = options or OutboundOptions()
        self._hosts = HostSlots(self._options.connections_per_host)
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
        progress = RequestProgress(bool(body), url.scheme == "https")
        heard: _Heard | None = None
        token = current_progress.set(progress)
        # Runs just before the timeout below, which closes the sockets.
        timer = asyncio.get_running_loop().call_later(timeout_s, progress.note_handshake)
        try:
            async with asyncio.timeout(timeout_s), self._hosts.slot(url.raw_host or ""):
                self._judge_literal(url, progress.permitted)
                async with self._opened().request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    trace_request_ctx=progress,
                ) as response:
                    heard = _Heard(response)
                    await heard.read(answer_bytes_max)
                    return heard.answer()
        except TimeoutError:
            if heard is not None:
                return heard.answer()
            reason = f"{_TIMEOUTS[progress.phase]} within {timeout_s:g} s"
            raise NoAnswer(reason, progress.phase, is_sent=progress.is_sent, is_timeout=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if (blocked := blocked_in(error)) is not None:
                raise blocked from None
            is_ended = isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError)
            is_stale = progress.is_reused and is_ended
            phase = progress.phase_of(error)
            raise NoAnswer(_reason(error, phase), phase, is_sent=progress.is_sent, is_stale=is_stale) from None
        finally:
            timer.cancel()
            current_progress.reset(token)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _judge_literal(self, url: URL, permitted: set[Address]) -> None:
        host = url.raw_host or ""
        try:
            address = ip_address(host)
        except ValueError:
            return
        self._guard.check(address, host)
        permitted.add(address)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=GuardedConnector(self._guard, self._tls_context, self._options.connections),
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=None),
                trace_configs=[trace_config()],
                raise_for_status=False,
            )
        return self._session


def _reason(error: BaseException, phase: HttpPhase) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"TLS handshake failed: {error.certificate_error}"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return str(error) or type(error).__name__
    cause = error.os_error.strerror or str(error.os_error) or "the server closed the connection"
    return f"{_FAILURES.get(phase, 'no connection')}: {cause}"


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


_TIMEOUTS = {
    HttpPhase.QUEUE: "no free connection",
    HttpPhase.RESOLVE: "no answer from the name server",
    HttpPhase.CONNECT: "no connection",
    HttpPhase.TLS: "no TLS handshake",
    HttpPhase.SEND: "the request was not sent",
    HttpPhase.ANSWER: "no answer",
}
_FAILURES = {HttpPhase.RESOLVE: "name resolution failed", HttpPhase.TLS: "TLS handshake failed"}
