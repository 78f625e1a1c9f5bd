"""The control connections of the two nodes of a site, driven by a test message by message."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Literal, TypeVar

import aiohttp
import msgspec

from fieldpost.link.codec import decode, decode_as, encode
from fieldpost.link.messages import (
    EpochAnswer,
    EpochAsk,
    EpochGiveBack,
    EpochRenew,
    EpochTaken,
    Health,
    Hello,
    LinkMessage,
    PairHealth,
    Refusal,
    Said,
)
from support.centre import SITE
from support.front import ADMIN, Front

Way = Literal["websocket", "post"]
DEADLINE_S = 30.0
SENT_AT = "2026-11-15T12:00:00.000000Z"

M = TypeVar("M", bound=msgspec.Struct)


class LinkNode:
    """One node with its token, on one of central's nodes."""

    def __init__(self, http: aiohttp.ClientSession, websocket: aiohttp.ClientWebSocketResponse | None) -> None:
        self._http = http
        self._websocket = websocket
        self._numbers = count(1)
        self.hello: Hello | None = None
        self.heard: list[LinkMessage] = []

    async def ask(self, known: int) -> EpochAnswer | Refusal:
        return await self._request(lambda number: EpochAsk(number, known))

    async def renew(self, epoch: int) -> EpochAnswer | Refusal:
        return await self._request(lambda number: EpochRenew(number, epoch))

    async def give_back(self, epoch: int) -> EpochAnswer | Refusal:
        return await self._request(lambda number: EpochGiveBack(number, epoch))

    async def taken(self, epoch: int, cause: str = "silence", reason: str | None = None) -> EpochAnswer | Refusal:
        return await self._request(lambda number: EpochTaken(number, epoch, SENT_AT, cause, reason))  # type: ignore[arg-type]

    async def report(self, node: int, *, lag_s: float = 0.0, parked: int = 0, **pair: object) -> None:
        """Send a health report and wait until central has it."""
        told = PairHealth(node=node, held=node, known=node, is_leading=False, lag_s=lag_s)
        health = Health(sent_at=SENT_AT, version="1", backlog={}, parked=parked)
        await self.send(msgspec.structs.replace(health, pair=msgspec.structs.replace(told, **pair)))
        await self.give_back(node)  # not held: answered after the report, and nothing else

    async def send(self, message: LinkMessage) -> None:
        if self._websocket is not None:
            await self._websocket.send_bytes(encode(message))
            return
        headers = {"Content-Type": "application/json"}
        async with self._http.post("/link/v1/control", data=encode(message), headers=headers) as answer:
            body = await answer.read()
        if answer.status == 200:
            self.heard += decode_as(body, Said).messages
        else:
            problem = msgspec.json.decode(body)
            self.heard.append(Refusal(problem["code"], problem["detail"]))

    async def receive(self, kind: type[M] | tuple[type[M], ...]) -> M:
        """The next message of this kind; others are kept in `heard`."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for index, message in enumerate(self.heard):
                    if isinstance(message, kind):
                        return self.heard.pop(index)  # type: ignore[return-value]
                if self._websocket is None:
                    await self.send(Hello(1, "test"))
                else:
                    frame = await self._websocket.receive()
                    assert frame.type is aiohttp.WSMsgType.BINARY, frame
                    self.heard.append(decode(frame.data))

    async def _request(self, message: Callable[[int], LinkMessage]) -> EpochAnswer | Refusal:
        number = next(self._numbers)
        await self.send(message(number))
        answer = await self.receive((EpochAnswer, Refusal))
        assert isinstance(answer, Refusal) or answer.request == number
        return answer


@asynccontextmanager
async def link_node(url: str, token: str, way: Way = "websocket") -> AsyncIterator[LinkNode]:
    """A node of a site that is connected with this token."""
    async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {token}"}) as http:
        if way == "post":
            node = LinkNode(http, None)
            await node.send(Hello(1, "test", begins=True))
            yield node
            return
        async with http.ws_connect("/link/v1/control") as websocket:
            node = LinkNode(http, websocket)
            node.hello = await node.receive(Hello)
            await node.send(Hello(1, "test"))
            yield node


async def pair_tokens(front: Front) -> tuple[str, str]:
    """The tokens of both nodes of the front's site."""
    return front.tokens["site"], (await front.operate.sites.add_node_token(ADMIN, SITE)).token
