"""The one client that speaks the link: a WebSocket that the sender opens, plain POST where a proxy forbids that.

It connects when there is something to submit, keeps the connection, and notices within half a minute when the other end
is gone: by the answer that does not come, by pings while nothing is under way, and by the system's own time-out for
unacknowledged bytes where it has one. Whatever goes wrong is Denied or Unavailable; what was submitted then is still
the sender's, who sends it again.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import aiohttp

import fieldpost
from fieldpost.clock import Clock
from fieldpost.core.errors import Denied, FieldpostError, InvalidInput, Unavailable
from fieldpost.link.codec import decode, decode_as, encode
from fieldpost.link.endpoint import DATA_PATH, SUBMIT_PATH, Endpoint
from fieldpost.link.messages import FRAME_BYTES_MAX, PROTOCOL, Ack, Hello, Item, Refusal, Submit
from fieldpost.link.session import Session

CONNECT_S = 15.0
"""How long a connection may take to open, name resolution, TLS and greeting included."""
PING_S = 8.0
SILENCE_S = 25.0
"""An idle connection on which nothing was heard for so long, pongs included, is dead."""
WEBSOCKET_AGAIN_S = 600.0
"""After a proxy refused the WebSocket, POST is used for so long before it is tried again."""

LOST = "link.lost"
"""The code of what was sent and not answered: central may have it."""


class LinkClient:
    """A sender's link to central."""

    def __init__(self, endpoint: Callable[[], Endpoint], session: Session, clock: Clock) -> None:
        """`endpoint` is asked at each connection, so that a rotated token is noticed."""
        self._endpoint = endpoint
        self._session = session
        self._clock = clock
        self._connection: _Connection | None = None
        self._http: aiohttp.ClientSession | None = None
        self._post_until: float | None = None

    async def submit(self, items: Sequence[Item]) -> Ack | Refusal:
        """Central's answer to these items.

        Raises Denied when central does not accept the token, Unavailable when it cannot be reached; with the code
        `link.lost` the items were sent and not answered.
        """
        submit = self._session.submit(items)
        data = encode(submit)
        if len(data) > FRAME_BYTES_MAX:
            return Refusal(
                "link.too_large", f"the message has {len(data)} bytes, at most {FRAME_BYTES_MAX}", submit.seq
            )
        if self._post_until is not None and self._clock.monotonic() < self._post_until:
            return await self._post(submit, data)
        if self._connection is not None and self._connection.is_closed:
            await self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = await self._connect()
        if self._connection is None:
            return await self._post(submit, data)
        return await self._connection.submit(submit, data)

    async def close(self) -> None:
        """Close the connection in order, without waiting long for the other end."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _connect(self) -> "_Connection | None":
        """A greeted connection, or None when a WebSocket cannot be had on this way, and POST is to be used."""
        endpoint = self._endpoint()
        try:
            async with asyncio.timeout(CONNECT_S):
                websocket = await self._fresh_http(endpoint).ws_connect(
                    endpoint.websocket_at(DATA_PATH),
                    headers={"Authorization": endpoint.authorization},
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                    autoping=False,
                    max_msg_size=FRAME_BYTES_MAX,
                )
                return await _Connection.greet(websocket, self._session, self._clock)
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise _denied(error.status) from None
            if error.status in (429, 503):
                raise Unavailable("link.busy", f"central answered with HTTP {error.status}") from None
            self._post_until = self._clock.monotonic() + WEBSOCKET_AGAIN_S
            return None
        except TimeoutError:
            raise Unavailable("link.timeout", f"central did not greet within {CONNECT_S:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    async def _post(self, submit: Submit, data: bytes) -> Ack | Refusal:
        endpoint = self._endpoint()
        http = self._http or self._fresh_http(endpoint)
        headers = {"Authorization": endpoint.authorization, "Content-Type": "application/json"}
        self._session.sent(submit, len(data), self._clock.monotonic())
        try:
            async with (
                asyncio.timeout(self._session.patience_s(len(data))),
                http.post(endpoint.at(SUBMIT_PATH), data=data, headers=headers, allow_redirects=False) as response,
            ):
                body = await response.content.read(FRAME_BYTES_MAX)
            answer = _from_http(response.status, response.headers.get("Retry-After"), body, submit.seq)
        except TimeoutError:
            self._session.lost()
            raise Unavailable(LOST, "central did not answer in time") from None
        except aiohttp.ClientConnectorError as error:
            self._session.lost()
            raise _unreachable(error) from error
        except (aiohttp.ClientError, OSError) as error:
            self._session.lost()
            raise Unavailable(LOST, f"the connection to central broke: {_say(error)}") from error
        except FieldpostError:
            self._session.lost()
            raise
        self._session.answered(answer, self._clock.monotonic())
        return answer

    def _fresh_http(self, endpoint: Endpoint) -> aiohttp.ClientSession:
        if self._http is None:
            tls = endpoint.tls()
            connector = aiohttp.TCPConnector(ssl=True if tls is None else tls, socket_factory=_watched_socket)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
            self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)
        return self._http


class _Connection:
    """One greeted WebSocket, with a task that reads it and one that watches over its silence."""

    def __init__(self, websocket: "aiohttp.ClientWebSocketResponse[bool]", session: Session, clock: Clock) -> None:
        self._websocket = websocket
        self._session = session
        self._clock = clock
        self._waiting: dict[int, asyncio.Future[Ack | Refusal]] = {}
        self._heard_at = clock.monotonic()
        self._reader: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @classmethod
    async def greet(
        cls, websocket: "aiohttp.ClientWebSocketResponse[bool]", session: Session, clock: Clock
    ) -> "_Connection":
        """Say hello, hear central's hello, and start listening."""
        try:
            await websocket.send_bytes(encode(Hello(PROTOCOL, fieldpost.__version__)))
            greeting = await _receive_greeting(websocket)
        except BaseException:
            await websocket.close()
            raise
        session.greeted(greeting)
        connection = cls(websocket, session, clock)
        connection._reader = asyncio.create_task(connection._read(), name="link-reader")
        connection._watcher = asyncio.create_task(connection._watch(), name="link-watcher")
        return connection

    @property
    def is_closed(self) -> bool:
        return self._websocket.closed or self._reader is None or self._reader.done()

    async def submit(self, submit: Submit, data: bytes) -> Ack | Refusal:
        answer: asyncio.Future[Ack | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting[submit.seq] = answer
        self._session.sent(submit, len(data), self._clock.monotonic())
        try:
            async with asyncio.timeout(self._session.patience_s(len(data))):
                await self._websocket.send_bytes(data)
                return await answer
        except TimeoutError:
            await self._end("central did not answer in time")
            raise Unavailable(LOST, "central did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            await self._end(_say(error))
            raise Unavailable(LOST, f"the connection to central broke: {_say(error)}") from error
        finally:
            self._waiting.pop(submit.seq, None)

    async def close(self) -> None:
        await self._end("the connection was closed")

    async def _read(self) -> None:
        reason = "central closed the connection"
        try:
            async for frame in self._websocket:
                self._heard_at = self._clock.monotonic()
                if frame.type is aiohttp.WSMsgType.BINARY:
                    self._take(frame.data)
                elif frame.type is aiohttp.WSMsgType.PING:
                    await self._websocket.pong(frame.data)
                elif frame.type is aiohttp.WSMsgType.ERROR:
                    reason = f"the connection to central broke: {self._websocket.exception()}"
                    break
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection to central broke: {error}"
        finally:
            self._forget(reason)

    def _take(self, data: bytes) -> None:
        try:
            message = decode(data)
        except InvalidInput:
            # A newer central may say things that this version does not know; they are no reason to hang up.
            return
        if isinstance(message, Hello):
            self._session.greeted(message)
        elif isinstance(message, Ack | Refusal) and self._session.answered(message, self._clock.monotonic()):
            answer = self._waiting.get(message.seq or 0)
            if answer is not None and not answer.done():
                answer.set_result(message)

    async def _watch(self) -> None:
        while not self._websocket.closed:
            await asyncio.sleep(PING_S)
            if self._waiting:
                # The ping would wait behind what is being sent; that has a deadline of its own.
                self._heard_at = self._clock.monotonic()
                continue
            if self._clock.monotonic() - self._heard_at > SILENCE_S:
                self._forget("central has fallen silent")
                await self._websocket.close()
                return
            with suppress(aiohttp.ClientError, OSError):
                await self._websocket.ping()

    async def _end(self, reason: str) -> None:
        self._forget(reason)
        for task in (self._watcher, self._reader):
            if task is not None:
                task.cancel()
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self._websocket.close()
        await asyncio.gather(*(task for task in (self._watcher, self._reader) if task), return_exceptions=True)

    def _forget(self, reason: str) -> None:
        """Nothing more will be heard: whoever waits for an answer is told so."""
        self._session.lost()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable(LOST, reason))


async def _receive_greeting(websocket: "aiohttp.ClientWebSocketResponse[bool]") -> Hello:
    frame = await websocket.receive()
    if frame.type is not aiohttp.WSMsgType.BINARY:
        raise Unavailable("link.unreachable", f"central closed the connection at once (code {websocket.close_code})")
    try:
        message = decode(frame.data)
    except InvalidInput as error:
        raise Unavailable("link.unusable", f"central's greeting cannot be read: {error.message}") from error
    match message:
        case Hello():
            return message
        case Refusal():
            raise Unavailable(message.code, f"central refused the connection: {message.error}")
        case _:
            raise Unavailable("link.unusable", "central did not begin with a greeting")


def _from_http(status: int, retry_after: str | None, body: bytes, seq: int) -> Ack | Refusal:
    """The answer of a POST as the WebSocket would have given it; raises when it is no answer to what was sent."""
    match status:
        case 200:
            try:
                answer = decode_as(body, Ack)
            except InvalidInput as error:
                raise Unavailable(LOST, f"central's answer cannot be read: {error.message}") from error
            if answer.seq != seq:
                raise Unavailable(LOST, "central answered another message")
            return answer
        case 401 | 403:
            raise _denied(status)
        case 400 | 409 | 413 | 422:
            return Refusal("link.invalid", f"central answered with HTTP {status}", seq)
        case 429 | 503:
            wait_s = (
                float(retry_after)
                if retry_after is not None and retry_after.isascii() and retry_after.isdigit()
                else None
            )
            return Refusal("link.busy", f"central answered with HTTP {status}", seq, wait_s)
        case _:
            raise Unavailable("link.unusable", f"central answered with HTTP {status}")


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


def _denied(status: int) -> Denied:
    return Denied("link.denied", f"central does not accept this sender's token (HTTP {status})")


def _unreachable(error: Exception) -> Unavailable:
    return Unavailable("link.unreachable", f"central cannot be reached: {_say(error)}")


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__
