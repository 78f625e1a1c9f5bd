"""The data client of the link: a WebSocket, or POST where a proxy rejects WebSockets.

The client connects when there is something to submit and keeps the connection open. It detects a dead peer within half
a minute: by a missing answer, by pings while the connection is idle, and by the TCP user timeout where the system has
one. Every failure is Denied or Unavailable; the sender still has the submitted items and sends them again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import aiohttp

from fieldpost.clock import Clock
from fieldpost.core.errors import Denied, FieldpostError, Unavailable
from fieldpost.link.addresses import Addresses, NoWebSocket
from fieldpost.link.codec import compress, encode
from fieldpost.link.connection import LOST, LinkConnection, open_connection, open_http
from fieldpost.link.endpoint import DATA_PATH, Endpoint
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Hello, Item, LinkMessage, Refusal, Submit
from fieldpost.link.post import post_submit
from fieldpost.link.session import LinkSession

WEBSOCKET_AGAIN_S = 600.0
"""How long to use POST after a proxy rejected the WebSocket, before trying a WebSocket again."""


class LinkClient:
    """A sender's data connection to central."""

    def __init__(self, endpoint: Callable[[], Endpoint], session: LinkSession, clock: Clock) -> None:
        """`endpoint` is called for each connection, so that a rotated token takes effect."""
        self._endpoint = endpoint
        self._session = session
        self._clock = clock
        self._connection: LinkConnection | None = None
        self._addresses = Addresses()
        self._opening = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[Ack | Refusal]] = {}
        self._http: aiohttp.ClientSession | None = None
        self._post_until: float | None = None

    async def submit(self, items: Sequence[Item], more: bool | None = None) -> Ack | Refusal:
        """Submit items and return central's answer. Several submits may be in flight; `more` announces further items.

        Raises Denied if central rejects the token and Unavailable if it cannot be reached. The code `link.lost` means
        that the items were sent but not answered.
        """
        submit = self._session.submit(items, more)
        data = encode(submit)
        if len(data) > FRAME_BYTES_MAX:
            return Refusal(
                "link.too_large", f"the message has {len(data)} bytes; the maximum is {FRAME_BYTES_MAX}", submit.seq
            )
        connection = await self._connected()
        return await (self._post(submit, data) if connection is None else self._submit(connection, submit, data))

    async def close(self) -> None:
        """Close the connection; waits at most a few seconds for the peer."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _connected(self) -> LinkConnection | None:
        """The connection, opened if necessary; None while POST must be used."""
        async with self._opening:
            if self._post_until is not None and self._clock.monotonic() < self._post_until:
                return None
            if self._connection is not None and self._connection.is_closed:
                await self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> LinkConnection | None:
        http = self._http = self._http or open_http()

        def open_one(endpoint: Endpoint) -> Awaitable[LinkConnection]:
            return open_connection(http, endpoint, DATA_PATH, self._clock, self._received)

        try:
            connection = await self._addresses.reach(self._endpoint(), open_one, LinkConnection.close)
        except NoWebSocket:
            self._post_until = self._clock.monotonic() + WEBSOCKET_AGAIN_S
            return None
        connection.ended = self._connection_ended
        self._session.greeted(connection.greeting)
        return connection

    async def _submit(self, connection: LinkConnection, submit: Submit, data: bytes) -> Ack | Refusal:
        answer: asyncio.Future[Ack | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting[submit.seq] = answer
        payload = compress(data) if self._session.is_compression_worth(len(data)) else data
        patience_s = self._session.patience_s(len(payload))
        self._session.sent(submit, len(data), self._clock.monotonic(), len(payload))
        try:
            with connection.deadline_elsewhere():
                async with asyncio.timeout(patience_s):
                    await connection.send(payload)
                    return await answer
        except TimeoutError:
            self._addresses.avoid(self._endpoint())
            await connection.close("central did not answer in time")
            raise Unavailable(LOST, "central did not answer in time") from None
        finally:
            self._waiting.pop(submit.seq, None)

    async def _received(self, message: LinkMessage) -> None:
        if isinstance(message, Hello):
            self._session.greeted(message)
        elif isinstance(message, Ack | Refusal) and self._session.answered(message, self._clock.monotonic()):
            answer = self._waiting.get(message.seq or 0)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def _connection_ended(self, reason: str) -> None:
        """Fail all waiting submits, because the connection has ended."""
        self._session.lost()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable(LOST, reason))

    async def _post(self, submit: Submit, data: bytes) -> Ack | Refusal:
        http = self._http = self._http or open_http()
        patience_s = self._session.patience_s(len(data))
        endpoint = self._endpoint()
        self._session.sent(submit, len(data), self._clock.monotonic())
        denial: Denied | None = None
        try:
            for number, one in enumerate(ordered := self._addresses.ordered(endpoint), start=1):
                try:
                    answer = await post_submit(http, one, data, submit.seq, patience_s)
                except (Denied, Unavailable) as error:
                    # A message that was sent may have arrived: report it as lost and do not try another address.
                    if error.code == LOST:
                        # The address may stay silent forever: try the next one first next time.
                        self._addresses.prefer(ordered[number % len(ordered)])
                        raise
                    denial = denial or (error if isinstance(error, Denied) else None)
                    if number == len(ordered):
                        raise denial or error from None
                else:
                    self._addresses.prefer(one)
                    break
        except FieldpostError as error:
            self._session.lost()
            if error.code != LOST:
                # POST fails too: try a WebSocket again.
                self._post_until = None
            raise
        self._session.answered(answer, self._clock.monotonic())
        return answer
