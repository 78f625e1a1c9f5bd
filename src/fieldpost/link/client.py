"""The one client that speaks the link: a WebSocket that the sender opens, plain POST where a proxy forbids that.

It connects when there is something to submit, keeps the connection, and notices within half a minute when the other end
is gone: by the answer that does not come, by pings while nothing is under way, and by the system's own time-out for
unacknowledged bytes where it has one. Whatever goes wrong is Denied or Unavailable; what was submitted then is still
the sender's, who sends it again.
"""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, InvalidInput, Unavailable
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.connection import (
    LOST,
    Connection,
    NoWebSocket,
    denied,
    open_connection,
    open_http,
    say,
    unreachable,
)
from fieldpost.link.endpoint import DATA_PATH, SUBMIT_PATH, Endpoint
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Hello, Item, Message, Refusal, Submit
from fieldpost.link.session import Session

WEBSOCKET_AGAIN_S = 600.0
"""After a proxy refused the WebSocket, POST is used for so long before it is tried again."""


class LinkClient:
    """A sender's data connection to central."""

    def __init__(self, endpoint: Callable[[], Endpoint], session: Session, clock: Clock) -> None:
        """`endpoint` is asked at each connection, so that a rotated token is noticed."""
        self._endpoint = endpoint
        self._session = session
        self._clock = clock
        self._connection: Connection | None = None
        self._waiting: dict[int, asyncio.Future[Ack | Refusal]] = {}
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
        return await self._submit(self._connection, submit, data)

    async def close(self) -> None:
        """Close the connection in order, without waiting long for the other end."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _connect(self) -> Connection | None:
        """A greeted connection, or None when a WebSocket cannot be had on this way, and POST is to be used."""
        endpoint = self._endpoint()
        self._http = self._http or open_http(endpoint)
        try:
            connection = await open_connection(self._http, endpoint, DATA_PATH, self._clock, self._heard, self._forget)
        except NoWebSocket:
            self._post_until = self._clock.monotonic() + WEBSOCKET_AGAIN_S
            return None
        self._session.greeted(connection.greeting)
        return connection

    async def _submit(self, connection: Connection, submit: Submit, data: bytes) -> Ack | Refusal:
        answer: asyncio.Future[Ack | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting[submit.seq] = answer
        self._session.sent(submit, len(data), self._clock.monotonic())
        try:
            with connection.deadline_elsewhere():
                async with asyncio.timeout(self._session.patience_s(len(data))):
                    await connection.send(data)
                    return await answer
        except TimeoutError:
            await connection.close("central did not answer in time")
            raise Unavailable(LOST, "central did not answer in time") from None
        finally:
            self._waiting.pop(submit.seq, None)

    async def _heard(self, message: Message) -> None:
        if isinstance(message, Hello):
            self._session.greeted(message)
        elif isinstance(message, Ack | Refusal) and self._session.answered(message, self._clock.monotonic()):
            answer = self._waiting.get(message.seq or 0)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def _forget(self, reason: str) -> None:
        """Nothing more will be heard: whoever waits for an answer is told so."""
        self._session.lost()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable(LOST, reason))

    async def _post(self, submit: Submit, data: bytes) -> Ack | Refusal:
        endpoint = self._endpoint()
        http = self._http = self._http or open_http(endpoint)
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
            raise unreachable(error) from error
        except (aiohttp.ClientError, OSError) as error:
            self._session.lost()
            raise Unavailable(LOST, f"the connection to central broke: {say(error)}") from error
        except FieldpostError:
            self._session.lost()
            raise
        self._session.answered(answer, self._clock.monotonic())
        return answer


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
            raise denied(status)
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
