"""The control connection where no WebSocket can be had: each message by a POST, and a question every few seconds.

To whoever uses it it is a connection like the other: it can be sent on, it hears, and it ends, by the first POST that
fails, or after a while by itself, so that a WebSocket is tried again. What central wants to say waits for the next
question.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import aiohttp

import fieldpost
from fieldpost.core.errors import InvalidInput, Unavailable
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.connection import LOST, say, trusting, unreachable
from fieldpost.link.endpoint import CONTROL_PATH, Endpoint, denied
from fieldpost.link.messages import FRAME_BYTES_MAX, PROTOCOL, Hello, LinkMessage, Said

ASK_S = 5.0
"""Between two questions: so long what central says may wait."""
ANSWER_S = 25.0
WEBSOCKET_AGAIN_S = 600.0
"""After so long a WebSocket is tried again."""

_FIRST_QUESTION = encode(Hello(PROTOCOL, fieldpost.__version__, begins=True))
_QUESTION = encode(Hello(PROTOCOL, fieldpost.__version__))


class Polling:
    """A control connection by POST."""

    def __init__(
        self, http: aiohttp.ClientSession, endpoint: Endpoint, heard: Callable[[LinkMessage], Awaitable[None]]
    ) -> None:
        self.greeting = Hello(PROTOCOL, "")
        self.over = asyncio.Event()
        self._http = http
        self._endpoint = endpoint
        self._heard = heard
        self._said: asyncio.Queue[LinkMessage] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._ask(), name="link-asker")]
        self._tasks.append(asyncio.create_task(self._hear(), name="link-reader"))

    @property
    def is_closed(self) -> bool:
        return self.over.is_set()

    async def send(self, data: bytes) -> None:
        """Say this to central. Raises Denied or Unavailable, and is over then."""
        try:
            for message in await post_control(self._http, self._endpoint, data):
                self._said.put_nowait(message)
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

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(WEBSOCKET_AGAIN_S):
                while not self.is_closed:
                    await asyncio.sleep(ASK_S)
                    await self.send(_QUESTION)
        except TimeoutError:
            return
        finally:
            self.over.set()

    async def _hear(self) -> None:
        while True:
            await self._heard(await self._said.get())


async def open_polling(
    http: aiohttp.ClientSession, endpoint: Endpoint, heard: Callable[[LinkMessage], Awaitable[None]]
) -> Polling:
    """A connection by POST to an address that answers so. Raises Denied or Unavailable."""
    said = await post_control(http, endpoint, _FIRST_QUESTION)
    polling = Polling(http, endpoint, heard)
    for message in said:
        await heard(message)
    return polling


async def post_control(http: aiohttp.ClientSession, endpoint: Endpoint, data: bytes) -> tuple[LinkMessage, ...]:
    """Say one message, and hear what central has to say."""
    headers = {"Authorization": endpoint.authorization, "Content-Type": "application/json"}
    url = endpoint.at(CONTROL_PATH)
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            http.post(url, data=data, headers=headers, allow_redirects=False, ssl=trusting(endpoint)) as response,
        ):
            body = await response.content.read(FRAME_BYTES_MAX)
    except TimeoutError:
        raise Unavailable(LOST, "central did not answer in time") from None
    except aiohttp.ClientConnectorError as error:
        raise unreachable(error) from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(LOST, f"the connection to central broke: {say(error)}") from error
    match response.status:
        case 200:
            try:
                return decode_as(body, Said).messages
            except InvalidInput as error:
                raise Unavailable("link.unusable", f"central's answer cannot be read: {error.message}") from error
        case 400 | 413 | 422:
            # It was refused, as on a WebSocket, and that is all.
            return ()
        case 401 | 403:
            raise denied(response.status)
        case _:
            raise Unavailable("link.no_websocket", f"central can be reached neither way (HTTP {response.status})")
