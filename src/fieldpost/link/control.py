"""The control connection: health, telemetry and commands have their own connection, so a backlog never delays them.

The sender keeps it open while it runs, at any of central's addresses (DEC-26). After it ends, the sender reconnects
after a fixed interval plus jitter, so that the sites do not reconnect in step. Messages from central go to the handler,
whose answer is sent back; unknown messages get a Refusal. Nothing is stored here: a message that cannot be sent raises
Unavailable, and the caller keeps it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

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
"""The pause before reconnecting; up to half of it is added as jitter."""
SEND_S = 25.0
"""The time limit for sending a message; after it the connection counts as dead."""

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
        """`endpoint` is called for each connection, so that a rotated token takes effect."""
        self._endpoint = endpoint
        self._handler = handler
        self._clock = clock
        self._random = random
        self._interval_s = interval_s
        self._addresses = Addresses()
        self._connection: LinkConnection | Polling | None = None
        self._failure: str | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed

    @property
    def greeting(self) -> Hello | None:
        """Central's greeting on this connection; None while not connected."""
        return self._connection.greeting if self._connection is not None and self.is_connected else None

    async def send(self, message: LinkMessage) -> None:
        """Send a message. Raises Unavailable without a connection or if it breaks."""
        if self._connection is None or self._connection.is_closed:
            raise Unavailable("link.not_connected", "there is no control connection to central")
        try:
            with self._connection.deadline_elsewhere():
                async with asyncio.timeout(SEND_S):
                    await self._connection.send(encode(message))
        except TimeoutError:
            await self._connection.close("central did not accept a message in time")
            raise Unavailable(LOST, "central did not accept the message in time") from None

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep one connection open until `stopping` is set. Network failures are logged, not raised."""
        while not stopping.is_set():
            try:
                await self._connect_once(stopping)
            except FieldpostError as error:
                self._log_state(error.code, error.message)
            if not stopping.is_set():
                await self._rest(stopping)

    async def _connect_once(self, stopping: asyncio.Event) -> None:
        """Open a connection and keep it until it ends or `stopping` is set."""
        async with open_http() as http:
            connection = self._connection = await self._open(http)
            self._log_state(None, "")
            try:
                await _first_of(connection.over.wait(), stopping.wait())
            finally:
                self._connection = None
                await connection.close()

    async def _open(self, http: aiohttp.ClientSession) -> LinkConnection | Polling:
        """A WebSocket if possible, else polling by POST, at any of central's addresses."""
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
            answer = Refusal("internal", "internal error of the sender")
        if answer is not None:
            # If the connection has ended, central repeats its request on the next one.
            try:
                await self.send(answer)
            except Unavailable:
                return

    async def _rest(self, stopping: asyncio.Event) -> None:
        pause_s = self._interval_s * (1 + 0.5 * self._random.random())
        await _first_of(self._clock.sleep(pause_s), stopping.wait())

    def _log_state(self, code: str | None, error: str) -> None:
        """Log a failure once per error code, not once per interval."""
        if code == self._failure:
            return
        self._failure = code
        if code is None:
            _log.info("control.connected")
        else:
            _log.warning("control.failed", code=code, error=error)


async def _first_of(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
