"""The link against recordings of its first version: an older site with this central, and the reverse."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import WSMsgType, web

from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.link import messages
from fieldpost.link.client import LinkClient
from fieldpost.link.codec import decode, encode
from fieldpost.link.connection import open_connection, open_http
from fieldpost.link.endpoint import CONTROL_PATH, Endpoint
from fieldpost.link.messages import Ack, Item, Refusal, Submit
from fieldpost.link.session import LinkSession
from fieldpost.testing import ManualClock
from support import protocol_1
from support.front import open_front, served
from support.site_folders import TOKEN

NOT_COMPARED = {"version": "", "credits": 0}
"""What depends on the release and on the moment, and not on the protocol."""


REWORDED = {
    "notification.conflict": "this id is already stored with other content",
    "submit.other_site": "site must be 'plant-7', the site of the token",
}
"""Error texts by code that are worded differently since the recording; programs read only the code."""


def plain(message: Any) -> dict[str, Any]:
    return msgspec.to_builtins(message) | {k: v for k, v in NOT_COMPARED.items() if hasattr(message, k)}


def reworded(message: Any) -> dict[str, Any]:
    """The recorded message with the error texts of this release."""
    found = plain(message)
    for result in found.get("results", ()):
        if result.get("code") in REWORDED:
            result["error"] = REWORDED[result["code"]]
    return found


@asynccontextmanager
async def central(store_url: str) -> AsyncIterator[tuple[aiohttp.ClientSession, dict[str, str]]]:
    async with (
        open_front(store_url, ManualClock()) as front,
        served(front.app) as url,
        aiohttp.ClientSession(base_url=url) as http,
    ):
        yield http, {"Authorization": f"Bearer {front.tokens['site']}"}


async def test_older_site_gets_the_same_answers_from_this_central(store_url: str) -> None:
    """Each recorded frame of a site, in its order; each answer as an older site reads it."""
    async with central(store_url) as (http, headers):
        async with http.ws_connect("/link/v1/data", headers=headers) as websocket:
            for recorded in protocol_1.recording("websocket"):
                if recorded.sender == "site":
                    await websocket.send_bytes(recorded.content)
                    continue
                async with asyncio.timeout(20):
                    answer = protocol_1.decode(await websocket.receive_bytes())
                if isinstance(answer, protocol_1.Refusal):
                    assert (answer.code, answer.seq) == (recorded.message.code, recorded.message.seq)
                else:
                    assert plain(answer) == reworded(recorded.message)
        question, recorded = protocol_1.recording("post")
        given = headers | {"Content-Type": "application/json"}
        async with http.post("/link/v1/submit", data=question.content, headers=given) as response:
            assert plain(protocol_1.decode(await response.read())) == reworded(recorded.message)


class OlderCentral:
    """Reads strictly what protocol 1 had, and answers as it was recorded."""

    def __init__(self) -> None:
        self.url = ""
        self.heard: list[Any] = []
        websocket = [r for r in protocol_1.recording("websocket") if r.sender == "central"]
        self.greeting = next(r.content for r in websocket if isinstance(r.message, protocol_1.Hello))
        self.acks = {r.message.seq: r.content for r in websocket if isinstance(r.message, protocol_1.Ack)}
        self.posted = protocol_1.recording("post")[1].content

    async def socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(self.greeting)
        async for frame in socket:
            assert frame.type is WSMsgType.BINARY
            message = protocol_1.decode(frame.data)
            self.heard.append(message)
            if isinstance(message, protocol_1.Submit):
                await socket.send_bytes(self.acks[message.seq])
        return socket

    async def post(self, request: web.Request) -> web.Response:
        assert "Content-Encoding" not in request.headers
        self.heard.append(protocol_1.decode(await request.read()))
        return web.Response(body=self.posted)


@asynccontextmanager
async def older_central(*, has_websocket: bool) -> AsyncIterator[OlderCentral]:
    older = OlderCentral()
    app = web.Application()
    if has_websocket:
        app.router.add_get("/link/v1/data", older.socket)
    app.router.add_post("/link/v1/submit", older.post)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        older.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield older
    finally:
        await runner.cleanup()


def of_now(submit: protocol_1.Submit) -> list[Item]:
    return [msgspec.convert(msgspec.to_builtins(item), Item) for item in submit.items]


async def test_this_site_is_understood_by_an_older_central_and_understands_it() -> None:
    """The items that were recorded, sent by the client of now: the older end reads the same submits."""
    sent = [
        r.message
        for r in protocol_1.recording("websocket")
        if r.sender == "site" and r.is_of_the_protocol and isinstance(r.message, protocol_1.Submit)
    ]
    async with older_central(has_websocket=True) as older:
        client = LinkClient(lambda: Endpoint(older.url, TOKEN), LinkSession(), SystemClock())
        for submit in sent:
            answer = await client.submit(of_now(submit), more=True)
            assert isinstance(answer, Ack)
            assert plain(protocol_1.decode(older.acks[submit.seq])).items() <= (plain(answer) | {"t": "ack"}).items()
        await client.close()
    hello, *submits = older.heard
    assert hello.protocol == 1
    assert submits == sent


async def test_this_site_posts_to_an_older_central_where_a_proxy_refuses_the_websocket() -> None:
    question, answer = protocol_1.recording("post")
    async with older_central(has_websocket=False) as older:
        session = LinkSession()
        for _ in range(question.message.seq - 1):
            session.submit([])
        client = LinkClient(lambda: Endpoint(older.url, TOKEN), session, SystemClock())
        ack = await client.submit(of_now(question.message))
        await client.close()
    assert older.heard == [question.message]
    assert isinstance(ack, Ack)
    assert [r.verdict for r in ack.results] == [r.verdict for r in answer.message.results]


async def test_messages_to_an_older_central_without_compression_are_sent_plain() -> None:
    async with older_central(has_websocket=True) as older:
        client = LinkClient(lambda: Endpoint(older.url, TOKEN), LinkSession(), SystemClock())
        await client.submit([Item("id", "ops", "s", "all the same " * 1000)])
        await client.close()
    assert isinstance(older.heard[-1], protocol_1.Submit), "it was read without being decompressed"


@pytest.mark.parametrize("kind", [Submit, Ack, Refusal, messages.Hello])
def test_every_message_of_the_recorded_protocol_can_still_be_made_and_read(kind: type[Any]) -> None:
    """Fields are only ever added, and only such as may be left out."""
    older = getattr(protocol_1, kind.__name__)
    for field in msgspec.structs.fields(kind):
        is_new = field.name not in older.__struct_fields__
        assert not is_new or not field.required, f"an older end does not send {kind.__name__}.{field.name}"
    assert set(older.__struct_fields__) <= set(kind.__struct_fields__)
    for recorded in protocol_1.recording("websocket") + protocol_1.recording("post"):
        if recorded.is_of_the_protocol and isinstance(recorded.message, older):
            again = protocol_1.decode(encode(decode(recorded.content)))
            assert again == recorded.message


@pytest.mark.parametrize("path", ["data", "control"])
async def test_unknown_message_of_a_newer_site_is_rejected_and_the_connection_stays(store_url: str, path: str) -> None:
    """Unknown messages, unknown fields, a higher number of the protocol: answered, and the connection stays."""
    async with central(store_url) as (http, headers), http.ws_connect(f"/link/v1/{path}", headers=headers) as websocket:
        await websocket.receive_bytes()
        hello = {"t": "hello", "protocol": 2, "version": "9.0", "accepts": ["zlib", "brotli"], "mood": {"good": True}}
        await websocket.send_bytes(json.dumps(hello).encode())
        await websocket.send_bytes(b'{"t":"tomorrow","seq":7,"x":1}')
        async with asyncio.timeout(20):
            refusal = decode(await websocket.receive_bytes())
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.seq) == ("link.invalid", 7)
        if path == "data":
            item = {"notification_id": "0198c8a0-0000-7000-8000-000000000001", "list_name": "ops", "subject": "s"}
            submit = {"t": "submit", "seq": 8, "items": [item | {"body": "b", "colour": "red"}], "urgent": True}
            await websocket.send_bytes(json.dumps(submit).encode())
            async with asyncio.timeout(20):
                ack = decode(await websocket.receive_bytes())
            assert isinstance(ack, Ack)
            assert [result.verdict for result in ack.results] == ["accepted"]


async def test_older_central_without_a_control_connection_is_distinguished_from_an_unreachable_one() -> None:
    async def hear(message: messages.LinkMessage) -> None:
        raise AssertionError(message)

    async with older_central(has_websocket=True) as older, open_http() as http:
        with pytest.raises(Unavailable) as caught:
            await open_connection(http, Endpoint(older.url, TOKEN), CONTROL_PATH, SystemClock(), hear)
    assert caught.value.code == "link.no_websocket"
