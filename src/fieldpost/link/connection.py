"""A WebSocket connection to central, for data or control.

Both peers start with a Hello. One task reads messages; another pings while the connection is idle and closes it when
central stays silent. The TCP user timeout does the same where the system has one.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import aiohttp

import fieldpost
from fieldpost.clock import Clock
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.link.addresses import NoWebSocket
from fieldpost.link.codec import decode, decompress, encode
from fieldpost.link.endpoint import Endpoint, denied
from fieldpost.link.messages import FRAME_BYTES_MAX, PROTOCOL, ZLIB, Hello, LinkMessage, Refusal
from fieldpost.system_error import reason_of

CONNECT_S = 15.0
"""The time limit for opening a connection, including name resolution, TLS and greeting."""
PING_S = 9.0
SILENCE_S = 18.0
"""A connection without any frame, pongs included, for this long is dead; with the ping interval, within 27 s."""

LOST = "link.lost"
"""The error code of a message that was sent but not answered: central may have it."""

WebSocket = aiohttp.ClientWebSocketResponse[bool]


class LinkConnection:
    """An open connection. `received` gets each message; at the end `over` is set and `ended` gets the reason."""

    def __init__(
        self, websocket: WebSocket, greeting: Hello, clock: Clock, received: Callable[[LinkMessage], Awaitable[None]]
    ) -> None:
        self.greeting = greeting
        self.over = asyncio.Event()
        self.ended: Callable[[str], None] = lambda reason: None
        self._websocket = websocket
        self._clock = clock
        self._received = received
        self._received_at = clock.monotonic()
        self._deadlines = 0
        self._reader = asyncio.create_task(self._read(), name="link-reader")
        self._watcher = asyncio.create_task(self._watch(), name="link-watcher")

    @property
    def is_closed(self) -> bool:
        return self._websocket.closed or self._reader.done()

    async def send(self, data: bytes) -> None:
        """Send the bytes; Unavailable with code `link.lost` if the connection breaks."""
        try:
            await self._websocket.send_bytes(data)
        except (aiohttp.ClientError, OSError) as error:
            await self.close(describe_error(error))
            raise Unavailable(LOST, f"the connection to central broke: {describe_error(error)}") from error

    @contextmanager
    def deadline_elsewhere(self) -> Iterator[None]:
        """Suspend the silence check while the caller has its own deadline: a ping would wait behind the sent data."""
        self._deadlines += 1
        try:
            yield
        finally:
            self._deadlines -= 1

    async def close(self, reason: str = "the connection was closed") -> None:
        """Close the connection; waits at most a few seconds for the peer."""
        self._end(reason)
        own = asyncio.current_task()
        tasks = [task for task in (self._watcher, self._reader) if task is not own]
        for task in tasks:
            task.cancel()
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self._websocket.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        reason = "central closed the connection"
        try:
            async for frame in self._websocket:
                self._received_at = self._clock.monotonic()
                if frame.type is aiohttp.WSMsgType.BINARY:
                    await self._take(frame.data)
                elif frame.type is aiohttp.WSMsgType.PING:
                    await self._websocket.pong(frame.data)
                elif frame.type is aiohttp.WSMsgType.ERROR:
                    reason = f"the connection to central broke: {self._websocket.exception()}"
                    break
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection to central broke: {error}"
        finally:
            self._end(reason)

    async def _take(self, data: bytes) -> None:
        try:
            message = decode(decompress(data))
        except InvalidInput:
            # A newer central may send messages that this version does not know; ignore them.
            return
        await self._received(message)

    async def _watch(self) -> None:
        while not self._websocket.closed:
            await asyncio.sleep(PING_S)
            if self._deadlines:
                self._received_at = self._clock.monotonic()
                continue
            if self._clock.monotonic() - self._received_at > SILENCE_S:
                self._end("central stopped answering")
                await self._websocket.close()
                return
            with suppress(aiohttp.ClientError, OSError):
                await self._websocket.ping()

    def _end(self, reason: str) -> None:
        if not self.over.is_set():
            self.over.set()
            self.ended(reason)


async def open_connection(
    http: aiohttp.ClientSession,
    endpoint: Endpoint,
    path: str,
    clock: Clock,
    received: Callable[[LinkMessage], Awaitable[None]],
) -> LinkConnection:
    """Open a connection and exchange greetings. Raises Denied, NoWebSocket or Unavailable."""
    try:
        async with asyncio.timeout(CONNECT_S):
            websocket = await http.ws_connect(
                endpoint.websocket_at(path),
                headers={"Authorization": endpoint.authorization},
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                autoping=False,
                max_msg_size=FRAME_BYTES_MAX,
                ssl=tls_of(endpoint),
            )
            greeting = await _greet(websocket)
    except aiohttp.WSServerHandshakeError as error:
        # Central answers 401 to an unknown token; a 403 comes from a proxy, which may still allow POST.
        if error.status == 401:
            raise denied(error.status) from None
        if error.status in (429, 503):
            raise Unavailable("link.busy", f"central answered with HTTP {error.status}") from None
        raise NoWebSocket(f"no WebSocket connection to central (HTTP {error.status})") from None
    except TimeoutError:
        raise Unavailable("link.timeout", f"central did not answer within {CONNECT_S:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise unreachable(error) from error
    return LinkConnection(websocket, greeting, clock, received)


def open_http() -> aiohttp.ClientSession:
    """The HTTP session for connections and POSTs to central; the caller closes it."""
    connector = aiohttp.TCPConnector(socket_factory=_keepalive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)


def tls_of(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """The TLS trust of a connection, loaded each time because certificates are renewed."""
    return endpoint.tls() or True


def unreachable(error: Exception) -> Unavailable:
    is_untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
    hint = "for your own certificate authority, set [central] ca_file in site.toml" if is_untrusted else None
    return Unavailable("link.unreachable", f"central cannot be reached: {describe_error(error)}", hint=hint)


def describe_error(error: Exception) -> str:
    # The library's own message includes the repr of its settings.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"no connection to {error.host}:{error.port}: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection to {error.host}:{error.port}: {reason_of(error.os_error)}"
    return reason_of(error)


async def _greet(websocket: WebSocket) -> Hello:
    """Send our Hello and receive central's."""
    try:
        await websocket.send_bytes(encode(Hello(PROTOCOL, fieldpost.__version__, accepts=(ZLIB,))))
        return await _receive_greeting(websocket)
    except BaseException:
        await websocket.close()
        raise


async def _receive_greeting(websocket: WebSocket) -> Hello:
    frame = await websocket.receive()
    if frame.type is not aiohttp.WSMsgType.BINARY:
        raise Unavailable(
            "link.unreachable", f"central closed the connection immediately (code {websocket.close_code})"
        )
    try:
        message = decode(decompress(frame.data))
    except InvalidInput as error:
        raise Unavailable("link.unusable", f"central's greeting is invalid: {error.message}") from error
    match message:
        case Hello():
            return message
        case Refusal():
            raise Unavailable(message.code, f"central refused the connection: {message.error}")
        case _:
            raise Unavailable("link.unusable", "central did not start with a greeting")


def _keepalive_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """A socket with TCP keepalive and user timeout, so that the system detects a dead peer."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    options = [("SO_KEEPALIVE", socket.SOL_SOCKET, 1)]
    options += [("TCP_KEEPIDLE", socket.IPPROTO_TCP, 10), ("TCP_KEEPINTVL", socket.IPPROTO_TCP, 5)]
    options += [("TCP_KEEPCNT", socket.IPPROTO_TCP, 3), ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 25_000)]
    for name, level, value in options:
        if hasattr(socket, name):
            with suppress(OSError):
                made.setsockopt(level, getattr(socket, name), value)
    return made
