"""One greeted WebSocket to central, of whichever of the two kinds: opened, read, watched over, closed.

Both ends begin with a Hello. A task reads what central says; another pings while nothing else is heard, and gives the
connection up when it stays silent. The system's own time-out for unacknowledged bytes does the same where it exists.
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

CONNECT_S = 15.0
"""How long a connection may take to open, name resolution, TLS and greeting included."""
PING_S = 9.0
SILENCE_S = 18.0
"""A connection on which nothing was heard for so long, pongs included, is dead. It is looked at with every ping, so it
is noticed within 27 s."""

LOST = "link.lost"
"""The code of what was sent and not answered: central may have it."""

WebSocket = aiohttp.ClientWebSocketResponse[bool]


class LinkConnection:
    """A greeted connection. `heard` is given each message; at its end `over` is set and `ended` told why."""

    def __init__(
        self, websocket: WebSocket, greeting: Hello, clock: Clock, heard: Callable[[LinkMessage], Awaitable[None]]
    ) -> None:
        self.greeting = greeting
        self.over = asyncio.Event()
        self.ended: Callable[[str], None] = lambda reason: None
        self._websocket = websocket
        self._clock = clock
        self._heard = heard
        self._heard_at = clock.monotonic()
        self._deadlines = 0
        self._reader = asyncio.create_task(self._read(), name="link-reader")
        self._watcher = asyncio.create_task(self._watch(), name="link-watcher")

    @property
    def is_closed(self) -> bool:
        return self._websocket.closed or self._reader.done()

    async def send(self, data: bytes) -> None:
        """Hand the bytes to the system; Unavailable with the code `link.lost` when the connection breaks."""
        try:
            await self._websocket.send_bytes(data)
        except (aiohttp.ClientError, OSError) as error:
            await self.close(say(error))
            raise Unavailable(LOST, f"the connection to central broke: {say(error)}") from error

    @contextmanager
    def deadline_elsewhere(self) -> Iterator[None]:
        """Meanwhile whoever sends decides how long silence may last: a ping would wait behind what is being sent."""
        self._deadlines += 1
        try:
            yield
        finally:
            self._deadlines -= 1

    async def close(self, reason: str = "the connection was closed") -> None:
        """Close it in order, without waiting long for the other end."""
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
                self._heard_at = self._clock.monotonic()
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
            # A newer central may say things that this version does not know; they are no reason to hang up.
            return
        await self._heard(message)

    async def _watch(self) -> None:
        while not self._websocket.closed:
            await asyncio.sleep(PING_S)
            if self._deadlines:
                self._heard_at = self._clock.monotonic()
                continue
            if self._clock.monotonic() - self._heard_at > SILENCE_S:
                self._end("central has fallen silent")
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
    heard: Callable[[LinkMessage], Awaitable[None]],
) -> LinkConnection:
    """A greeted connection. Raises Denied or Unavailable, of which NoWebSocket is one."""
    try:
        async with asyncio.timeout(CONNECT_S):
            websocket = await http.ws_connect(
                endpoint.websocket_at(path),
                headers={"Authorization": endpoint.authorization},
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                autoping=False,
                max_msg_size=FRAME_BYTES_MAX,
                ssl=trusting(endpoint),
            )
            greeting = await _greet(websocket)
    except aiohttp.WSServerHandshakeError as error:
        # Central says 401 to a token that it does not know; 403 is a proxy's word, and it may still let POST through.
        if error.status == 401:
            raise denied(error.status) from None
        if error.status in (429, 503):
            raise Unavailable("link.busy", f"central answered with HTTP {error.status}") from None
        raise NoWebSocket(f"central cannot be reached by WebSocket on this way (HTTP {error.status})") from None
    except TimeoutError:
        raise Unavailable("link.timeout", f"central did not greet within {CONNECT_S:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise unreachable(error) from error
    return LinkConnection(websocket, greeting, clock, heard)


def open_http() -> aiohttp.ClientSession:
    """What connections to central are opened by, and what POSTs go through; to be closed by whoever asked."""
    connector = aiohttp.TCPConnector(socket_factory=_watched_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)


def trusting(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """What a connection to the endpoint trusts, read anew each time, since certificates are renewed."""
    return endpoint.tls() or True


def unreachable(error: Exception) -> Unavailable:
    is_untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
    hint = "an authority of your own must stand in site.toml as [central] ca_file" if is_untrusted else None
    return Unavailable("link.unreachable", f"central cannot be reached: {say(error)}", hint=hint)


def say(error: Exception) -> str:
    # What the library says of these shows its own settings too, by their places in memory.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"Cannot connect to host {error.host}:{error.port}: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"Cannot connect to host {error.host}:{error.port}: {error.os_error}"
    return str(error) or type(error).__name__


async def _greet(websocket: WebSocket) -> Hello:
    """Say hello and hear central's."""
    try:
        await websocket.send_bytes(encode(Hello(PROTOCOL, fieldpost.__version__, accepts=(ZLIB,))))
        return await _receive_greeting(websocket)
    except BaseException:
        await websocket.close()
        raise


async def _receive_greeting(websocket: WebSocket) -> Hello:
    frame = await websocket.receive()
    if frame.type is not aiohttp.WSMsgType.BINARY:
        raise Unavailable("link.unreachable", f"central closed the connection at once (code {websocket.close_code})")
    try:
        message = decode(decompress(frame.data))
    except InvalidInput as error:
        raise Unavailable("link.unusable", f"central's greeting cannot be read: {error.message}") from error
    match message:
        case Hello():
            return message
        case Refusal():
            raise Unavailable(message.code, f"central refused the connection: {message.error}")
        case _:
            raise Unavailable("link.unusable", "central did not begin with a greeting")


def _watched_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """A socket whose peer's silence the system itself notices, also while bytes are under way."""
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
