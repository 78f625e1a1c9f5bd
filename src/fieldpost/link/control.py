"""The control connection: what must never wait behind a backlog (DEC-26) travels on a connection of its own.

The sender keeps it open for as long as it runs, over whichever of central's addresses answers; when it ends, it is
opened again after the fixed interval, with some chance in it, so that a fleet does not come back in step. What central
says is given to the handler, whose answer, if any, is sent back; what this version does not know is refused politely.
Nothing is kept here: what could not be sent is told as Unavailable, and whoever wanted it sent still has it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import aiohttp
import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.link.addresses import Addresses, NoWebSocket
from fieldpost.link.codec import encode
from fieldpost.link.connection import LOST, LinkConnection, open_connection, open_http
from fieldpost.link.endpoint import CONTROL_PATH, Endpoint
from fieldpost.link.messages import Hello, LinkMessage, Refusal
from fieldpost.link.polling import Polling, open_polling

INTERVAL_S = 10.0
"""Between the end of a connection and the next try to open one; up to half of it is added by chance."""
SEND_S = 25.0
"""How long a message may take to be handed over before the line counts as dead."""

ControlHandler = Callable[[LinkMessage], Awaitable[LinkMessage | None]]

_log = structlog.stdlib.get_logger("fieldpost.link")


class ControlClient:
    """A sender's control connection to central."""

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        handler: ControlHandler,
        clock: Clock,
        random: Random,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """`endpoint` is asked at each connection, so that a rotated token is noticed."""
        self._endpoint = endpoint
        self._handler = handler
        self._clock = clock
        self._random = random
        self._interval_s = interval_s
        self._addresses = Addresses()
        self._connection: LinkConnection | Polling | None = None
        self._trouble: str | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed

    @property
    def greeting(self) -> Hello | None:
        """What central said at the beginning of this connection; None while there is none."""
        return self._connection.greeting if self._connection is not None and self.is_connected else None

    async def send(self, message: LinkMessage) -> None:
        """Say this to central. Raises Unavailable when there is no connection, or it breaks."""
        if self._connection is None or self._connection.is_closed:
            raise Unavailable("link.not_connected", "there is no control connection to central now")
        try:
            with self._connection.deadline_elsewhere():
                async with asyncio.timeout(SEND_S):
                    await self._connection.send(encode(message))
        except TimeoutError:
            await self._connection.close("central takes nothing")
            raise Unavailable(LOST, "central did not take the message in time") from None

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep one connection open until told to stop. Never raises for what the world does."""
        while not stopping.is_set():
            try:
                await self._connect_once(stopping)
            except FieldpostError as error:
                self._tell(error.code, error.message)
            if not stopping.is_set():
                await self._rest(stopping)

    async def _connect_once(self, stopping: asyncio.Event) -> None:
        """Open a connection and stay with it until it ends or we are to stop."""
        http = open_http()

        try:
            connection = await self._open(http)
            self._connection = connection
            self._tell(None, "")
            try:
                await _first_of(connection.over, stopping)
            finally:
                self._connection = None
                await connection.close()
        finally:
            await http.close()

    async def _open(self, http: aiohttp.ClientSession) -> LinkConnection | Polling:
        """A WebSocket where one can be had, else the same by POST, at any of central's addresses."""
        endpoint = self._endpoint()

        def by_websocket(one: Endpoint) -> Awaitable[LinkConnection]:
            return open_connection(http, one, CONTROL_PATH, self._clock, self._take)

        def by_post(one: Endpoint) -> Awaitable[Polling]:
            return open_polling(http, one, self._take)

        try:
            return await self._addresses.reach(endpoint, by_websocket, LinkConnection.close)
        except NoWebSocket:
            return await self._addresses.reach(endpoint, by_post, Polling.close)

    async def _take(self, message: LinkMessage) -> None:
        if isinstance(message, Hello | Refusal):
            return
        try:
            answer = await self._handler(message)
        except FieldpostError as error:
            answer = Refusal(error.code, error.message)
        except Exception:
            # A bug in handling one message must not cost the connection.
            _log.exception("control.crashed", message=type(message).__name__)
            answer = Refusal("internal", "the sender made a mistake over this message")
        if answer is not None:
            # It ended meanwhile: central asks again on the next connection.
            try:
                await self.send(answer)
            except Unavailable:
                return

    async def _rest(self, stopping: asyncio.Event) -> None:
        rest = asyncio.create_task(self._clock.sleep(self._interval_s * (1 + 0.5 * self._random.random())))
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({rest, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (rest, stopped):
                task.cancel()
            await asyncio.gather(rest, stopped, return_exceptions=True)

    def _tell(self, code: str | None, error: str) -> None:
        """Once per kind of trouble, not once per interval."""
        if code == self._trouble:
            return
        self._trouble = code
        if code is None:
            _log.info("control.connected")
        else:
            _log.warning("control.failed", code=code, error=error)


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
