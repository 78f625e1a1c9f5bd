"""One WebSocket connection of a site: read frames and answer them. An invalid frame never ends the connection.

On a data connection the next frame is read and checked while the store processes the previous one, so that a backlog
keeps the store busy. Answers are sent in the order of the requests.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

import fieldpost
from fieldpost.core.errors import Denied, FieldpostError, InvalidInput, Unavailable
from fieldpost.core.sites.node import SiteNode
from fieldpost.front import auth
from fieldpost.front.admission import authenticated, check_room, until_closed
from fieldpost.front.allowance import LinkKind, TooMuch
from fieldpost.front.backend import Backend
from fieldpost.front.guard import internal_refusal, report_bug
from fieldpost.front.http.problems import problem
from fieldpost.front.open_links import OpenLink
from fieldpost.link.codec import UNFIT, compress, decode, decompress, encode, salvage, seq_of
from fieldpost.link.http.problem import wait_of
from fieldpost.link.messages import PROTOCOL, ZLIB, Ack, Hello, LinkMessage, Refusal, Result

FRAMES_AT_ONCE = {LinkKind.DATA: 2, LinkKind.CONTROL: 1}

Unfit = dict[int, Result]
"""Rejections of the invalid items of a Submit, by index."""
Answering = Callable[[LinkMessage, Unfit], Awaitable[LinkMessage | None]]
"""The handler of one message of a connection."""

log = structlog.get_logger()


async def welcome(
    websocket: WebSocket, kind: LinkKind, backend: Backend, converse: Callable[[SiteNode, OpenLink], Awaitable[None]]
) -> None:
    """Authenticate the site, accept the connection and run `converse`; a refused site gets an HTTP problem instead."""
    try:
        sender = await auth.site_node(websocket.headers, backend.operate.accounts)
        authenticated(websocket.scope.get("state"), is_site=True)
        check_room(websocket.scope.get("state"))
        with until_closed(websocket.scope.get("state"), backend.allowances.take_connection(sender.site, kind)):
            await websocket.accept()
            with suppress(WebSocketDisconnect), backend.open_links.held(websocket) as link:
                await converse(sender, link)
    except FieldpostError as error:
        if isinstance(error, Denied):
            address = websocket.client.host if websocket.client else ""
            log.warning("call.denied", method="WEBSOCKET", path=websocket.url.path, code=error.code, address=address)
        await websocket.send_denial_response(problem(error))


class SiteConversation:
    """An accepted connection of a site; `answering` handles its messages."""

    def __init__(
        self,
        websocket: WebSocket,
        sender: SiteNode,
        kind: LinkKind,
        backend: Backend,
        link: OpenLink,
        answering: Answering,
    ) -> None:
        self._websocket = websocket
        self._sender = sender
        self._site = sender.site
        self._kind = kind
        self._backend = backend
        self._link = link
        self._answering = answering
        self._is_over = False

    async def run(self) -> None:
        """Greet, then answer frames until a peer closes. Frames in progress are finished without an answer."""
        hello = Hello(
            PROTOCOL, fieldpost.__version__, self._backend.ingest.credits, accepts=(ZLIB,), node=self._sender.node
        )
        await self._websocket.send_bytes(encode(hello))
        free = asyncio.Semaphore(FRAMES_AT_ONCE[self._kind])
        before: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as group:
            while not self._is_over:
                await free.acquire()
                frame = await self._websocket.receive()
                if frame["type"] == "websocket.disconnect":
                    self._is_over = True
                    return
                content = frame.get("bytes")
                try:
                    self._backend.allowances.check(self._site, self._kind)
                except TooMuch as error:
                    # Refuse without decoding: a flood must cost as little as possible.
                    await self._send(encode(refusal(error, content)), before)
                    await self._backend.allowances.pause()
                    free.release()
                    continue
                size = len(frame.get("text") or content or b"")
                self._backend.allowances.charge(self._site, self._kind, items=1, bytes=size)
                before = group.create_task(self._serve(content, before))
                before.add_done_callback(lambda _: free.release())

    async def _serve(self, content: bytes | None, before: asyncio.Task[None] | None) -> None:
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._answer(content, began)
        except Denied:
            # The token was revoked while the connection was open.
            self._is_over = True
            return
        if answer is not None:
            await self._send(answer, before)

    async def _answer(self, content: bytes | None, began: float) -> bytes | None:
        """The answer to one frame, if it needs one. Denied if the token is no longer valid."""
        plain: bytes | None = None
        try:
            if content is None:
                raise InvalidInput(UNFIT, "only binary frames are accepted")
            plain = decompress(content)
            await self._link.check()
            self._backend.allowances.charge(self._site, self._kind, bytes=max(0, len(plain) - len(content)))
            message = await self._answering(*_read(plain, self._charge_values))
            if message is None:
                return None
            if isinstance(message, Ack):
                took_s = round(asyncio.get_running_loop().time() - began, 4)
                message = msgspec.structs.replace(message, took_s=took_s)
            # A compressed request comes over a slow line, on which a compressed answer pays too.
            return compress(encode(message)) if plain is not content else encode(message)
        except Denied:
            raise
        except FieldpostError as error:
            return encode(refusal(error, plain))
        except Exception as error:
            return internal_refusal(report_bug(error, path=self._websocket.url.path), seq_of(plain or b""))

    def _charge_values(self, count: int) -> None:
        self._backend.allowances.charge_values(self._site, self._kind, count)

    async def _send(self, answer: bytes, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        # A site that has disconnected repeats its request on the next connection.
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.send_bytes(answer)


def refusal(error: FieldpostError, content: bytes | None) -> Refusal:
    """The Refusal for an error."""
    wait_s = wait_of(error) if isinstance(error, Unavailable) else None
    return Refusal(error.code, error.message, seq_of(content or b""), wait_s)


def _read(content: bytes, on_values: Callable[[int], None]) -> tuple[LinkMessage, Unfit]:
    try:
        return decode(content, on_values), {}
    except InvalidInput as error:
        salvaged = salvage(content) if error.code == UNFIT else None
        if salvaged is None:
            raise
        return salvaged
