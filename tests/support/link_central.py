"""The link's other end for tests of the site: a real server that speaks the protocol and misbehaves on demand.

It stores by id before it acks, as central does, so a test can compare what a site sent with what arrived, how often.
"""

import asyncio
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from aiohttp import WSMsgType, web

from fieldpost.link.codec import decode, decode_as, encode
from fieldpost.link.messages import (
    ACCEPTED,
    DUPLICATE,
    ITEMS_MAX,
    Ack,
    Hello,
    Item,
    LinkMessage,
    Refusal,
    Result,
    StatusAnswer,
    Submit,
)

Behaviour = Literal["accept", "lose_ack", "cut", "silence", "forget", "stray"] | Refusal
"""accept: store and ack. lose_ack: store, then hang up. cut: hang up at once. silence: never answer. forget: ack only
the first item. stray: an ack of a number that nobody sent and a message of an unknown kind, then accept. A Refusal is
sent with the number of the Submit, nothing being stored."""


class LinkCentral:
    """What it heard and how it is to answer; a test changes the latter at any time."""

    def __init__(self) -> None:
        self.url = ""
        self.stored: dict[str, Item] = {}
        self.received: Counter[str] = Counter()
        self.batches: list[int] = []
        self.hellos: list[Hello] = []
        self.tokens: list[str | None] = []
        self.posts = 0
        self.upgrades = 0
        self.next: deque[Behaviour] = deque()
        """One per Submit to come; when it is empty, accept."""
        self.judge: Callable[[Item], Result] = lambda item: Result(item.notification_id, ACCEPTED)
        self.credits = ITEMS_MAX
        self.upgrade_status: int | None = None
        """Answer the upgrade with this HTTP status instead of a WebSocket."""
        self.post_status: int | None = None
        self.greeting: LinkMessage | None = Hello(1, "test")
        self.statuses: dict[str, StatusAnswer] = {}
        self.status_response: Callable[[], web.StreamResponse] | None = None
        self.status_asked: list[str] = []
        self.control_sockets: list[web.WebSocketResponse] = []
        self.hear_control: Callable[[LinkMessage], None] = lambda message: None
        self.heard = asyncio.Condition()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30) -> None:
        """Return once the condition holds; it is looked at whenever something was heard."""
        async with asyncio.timeout(timeout_s), self.heard:
            await self.heard.wait_for(condition)

    async def serve_socket(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        self.upgrades += 1
        await self._tell()
        if self.upgrade_status is not None:
            return web.Response(status=self.upgrade_status)
        socket = web.WebSocketResponse(max_msg_size=5 * 1024 * 1024)
        await socket.prepare(request)
        if self.greeting is not None:
            await socket.send_bytes(encode(self.greeting))
        async for frame in socket:
            if frame.type is WSMsgType.BINARY:
                message = decode(frame.data)
                if isinstance(message, Hello):
                    self.hellos.append(message)
                elif isinstance(message, Submit):
                    await self._answer(socket, message)
            await self._tell()
        return socket

    async def serve_control(self, request: web.Request) -> web.StreamResponse:
        self.upgrades += 1
        if self.upgrade_status is not None:
            return web.Response(status=self.upgrade_status)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(encode(self.greeting or Hello(1, "test")))
        self.control_sockets.append(socket)
        async for frame in socket:
            message = decode(frame.data)
            if not isinstance(message, Hello):
                self.hear_control(message)
        self.control_sockets.remove(socket)
        return socket

    async def say_control(self, message: LinkMessage) -> None:
        for socket in self.control_sockets:
            await socket.send_bytes(encode(message))

    async def end_control(self) -> None:
        for socket in list(self.control_sockets):
            await socket.close()

    async def serve_post(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization"))
        self.posts += 1
        await self._tell()
        if self.post_status is not None:
            return web.Response(status=self.post_status, headers={"Retry-After": "7"})
        ack = self._store(decode_as(await request.read(), Submit))
        await self._tell()
        return web.Response(body=encode(ack), content_type="application/json")

    async def serve_status(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        self.status_asked.append(request.match_info["id"])
        if self.status_response is not None:
            return self.status_response()
        answer = self.statuses.get(request.match_info["id"])
        return web.Response(status=404) if answer is None else web.Response(body=encode(answer))

    async def _answer(self, socket: web.WebSocketResponse, submit: Submit) -> None:
        match self.next.popleft() if self.next else "accept":
            case "accept":
                await socket.send_bytes(encode(self._store(submit)))
            case "lose_ack":
                self._store(submit)
                self._hang_up(socket)
            case "cut":
                self._hang_up(socket)
            case "silence":
                pass
            case "forget":
                ack = self._store(Submit(submit.seq, submit.items[:1]))
                await socket.send_bytes(encode(ack))
            case "stray":
                await socket.send_bytes(encode(Ack(submit.seq + 1000, (), self.credits)))
                await socket.send_bytes(b'{"t":"from_the_future","x":1}')
                await socket.send_bytes(encode(self._store(submit)))
            case Refusal(code=code, error=error, wait_s=wait_s):
                await socket.send_bytes(encode(Refusal(code, error, submit.seq, wait_s)))

    def _store(self, submit: Submit) -> Ack:
        self.batches.append(len(submit.items))
        results = []
        for item in submit.items:
            self.received[item.notification_id] += 1
            result = self.judge(item)
            if result.verdict == ACCEPTED and item.notification_id in self.stored:
                result = Result(item.notification_id, DUPLICATE)
            elif result.verdict == ACCEPTED:
                self.stored[item.notification_id] = item
            results.append(result)
        return Ack(submit.seq, tuple(results), self.credits)

    def _hang_up(self, socket: web.WebSocketResponse) -> None:
        transport = socket.get_extra_info("socket")
        assert transport is not None
        # No closing handshake: the line just ends, as when a machine loses its power.
        assert socket._req is not None
        assert socket._req.transport is not None
        socket._req.transport.abort()

    async def _tell(self) -> None:
        async with self.heard:
            self.heard.notify_all()


@asynccontextmanager
async def link_central(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[LinkCentral]:
    central = LinkCentral()
    app = web.Application(client_max_size=5 * 1024 * 1024)
    app.router.add_get("/link/v1/data", central.serve_socket)
    app.router.add_get("/link/v1/control", central.serve_control)
    app.router.add_post("/link/v1/submit", central.serve_post)
    app.router.add_get("/link/v1/status/{id}", central.serve_status)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        central.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield central
    finally:
        await runner.cleanup()
