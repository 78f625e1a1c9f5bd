"""The control connection by POST, for lines without WebSockets: one POST per message and a poll every few seconds.

It has the interface of `LinkConnection`. It ends at the first POST that fails, or after ten minutes so that a WebSocket
is tried again. Messages from central wait for the next poll.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import aiohttp

import fieldpost
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.endpoint import CONTROL_PATH, Endpoint, denied
from fieldpost.link.messages import PROTOCOL, Hello, LinkMessage, Said
from fieldpost.link.post import post

POLL_S = 5.0
"""The interval of polls: the maximum delay of a message from central."""
ANSWER_S = 25.0
WEBSOCKET_AGAIN_S = 600.0
"""After this time a WebSocket is tried again."""

_FIRST_POLL = encode(Hello(PROTOCOL, fieldpost.__version__, begins=True))
_POLL = encode(Hello(PROTOCOL, fieldpost.__version__))


class Polling:
    """A control connection by POST."""

    def __init__(
        self, http: aiohttp.ClientSession, endpoint: Endpoint, received: Callable[[LinkMessage], Awaitable[None]]
    ) -> None:
        self.greeting = Hello(PROTOCOL, "")
        self.over = asyncio.Event()
        self._http = http
        self._endpoint = endpoint
        self._received = received
        self._queue: asyncio.Queue[LinkMessage] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._poll(), name="link-poller")]
        self._tasks.append(asyncio.create_task(self._read(), name="link-reader"))

    @property
    def is_closed(self) -> bool:
        return self.over.is_set()

    async def send(self, data: bytes) -> None:
        """Send a message. On Denied or Unavailable the connection is over."""
        try:
            for message in await post_control(self._http, self._endpoint, data):
                self._queue.put_nowait(message)
        except BaseException:
            self.over.set()
            raise

    @contextmanager
    def deadline_elsewhere(self) -> Iterator[None]:
        yield

    async def close(self, reason: str = "") -> None:
        self.over.set()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _poll(self) -> None:
        try:
            async with asyncio.timeout(WEBSOCKET_AGAIN_S):
                while not self.is_closed:
                    await asyncio.sleep(POLL_S)
                    await self.send(_POLL)
        except TimeoutError:
            return
        finally:
            self.over.set()

    async def _read(self) -> None:
        while True:
            await self._received(await self._queue.get())


async def open_polling(
    http: aiohttp.ClientSession, endpoint: Endpoint, received: Callable[[LinkMessage], Awaitable[None]]
) -> Polling:
    """Open a polling connection. Raises Denied or Unavailable."""
    said = await post_control(http, endpoint, _FIRST_POLL)
    polling = Polling(http, endpoint, received)
    for message in said:
        await received(message)
    return polling


async def post_control(http: aiohttp.ClientSession, endpoint: Endpoint, data: bytes) -> tuple[LinkMessage, ...]:
    """Send one message and return central's pending messages."""
    response, body = await post(http, endpoint, CONTROL_PATH, data, ANSWER_S)
    match response.status:
        case 200:
            try:
                return decode_as(body, Said).messages
            except InvalidInput as error:
                raise Unavailable("link.unusable", f"central's answer is invalid: {error.message}") from error
        case 400 | 413 | 422:
            # The message was refused, as on a WebSocket; the connection stays open.
            return ()
        case 401 | 403:
            raise denied(response.status)
        case _:
            raise Unavailable(
                "link.no_websocket", f"central accepts neither WebSocket nor POST (HTTP {response.status})"
            )
