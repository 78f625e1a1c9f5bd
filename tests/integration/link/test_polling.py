"""The control connection where a proxy forbids WebSockets: by POST, with central as it is served."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import aiohttp
import pytest
from aiohttp import web

from fieldpost.clock import SystemClock
from fieldpost.core.errors import Unavailable
from fieldpost.core.sites.node import SiteNode
from fieldpost.front import connections
from fieldpost.link import polling
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Health, LinkMessage, Reconcile, ReconcileAnswer, Refusal
from support.front import Front, served
from support.loops import running
from support.running_central import until

SENT_AT = "2026-11-15T12:00:00.000000Z"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_S", 0.05)
    monkeypatch.setattr(connections, "SILENCE_S", 3600)


@asynccontextmanager
async def without_websockets(url: str) -> AsyncIterator[str]:
    """A proxy that passes requests on, and knows nothing of upgrades."""
    async with aiohttp.ClientSession() as http:

        async def pass_on(request: web.Request) -> web.Response:
            if request.headers.get("Upgrade"):
                return web.Response(status=426)
            headers = {name: request.headers[name] for name in ("Authorization", "Content-Type")}
            async with http.request(
                request.method, url + request.path, data=await request.read(), headers=headers
            ) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def client_of(front: Front, url: str, handler: Callable[[LinkMessage], object]) -> ControlClient:
    async def handle(message: LinkMessage) -> LinkMessage | None:
        return handler(message)  # type: ignore[return-value]

    endpoint = Endpoint(url, front.tokens["site"])
    return ControlClient(lambda: endpoint, handle, SystemClock(), Random(1), interval_s=0.05)


async def test_both_ends_communicate_without_websockets(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LinkMessage] = []

    def handler(message: LinkMessage) -> LinkMessage | None:
        asked.append(message)
        if not isinstance(message, Reconcile):
            return None
        return ReconcileAnswer(incarnation="b" * 32, after=message.after, until=0, high=0, sent_at=SENT_AT, rows=())

    backend = front.app.state.backend
    async with served(front.app) as url, without_websockets(url) as proxied:
        client = client_of(front, proxied, handler)
        async with running(client):
            await until(lambda: client.is_connected and backend.commands.connections.of("plant-7"))
            link = backend.commands.connections.of("plant-7")
            await link.send(Reconcile(0))
            await until(lambda: Reconcile(0) in asked)
            await client.send(Health(sent_at=SENT_AT, version="1.2.3", backlog={"notification": 4}))
            # What central does not take is refused, as on a WebSocket, and the connection stays.
            await client.send(Reconcile(5))
            assert client.is_connected
            assert backend.commands.connections.of("plant-7") is link
            monkeypatch.setattr(connections, "SILENCE_S", 0.5)
            await link.send(Reconcile(2))
            await until(lambda: Reconcile(2) in asked, what="the site to ask once more")
        # It asks no more: after a while it is gone.
        await until(lambda: backend.commands.connections.of("plant-7") is None)
        with pytest.raises(Unavailable):
            await link.send(Reconcile(1))


@pytest.mark.req("TEL-04")
async def test_site_that_reconnects_before_its_timeout_is_reconciled_at_once(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telemetry begins where central's first question ends; without one it would begin at the next, minutes later."""
    monkeypatch.setattr(connections, "SILENCE_S", 3600)
    backend = front.app.state.backend

    async def begin(url: str) -> connections.PolledLink:
        asked: list[LinkMessage] = []
        client = client_of(front, url, asked.append)
        async with running(client):
            await until(lambda: client.is_connected and backend.commands.connections.of("plant-7"))
            await backend.commands.sweep()
            await backend.commands.settled()
            await until(lambda: any(isinstance(message, Reconcile) for message in asked))
        return backend.polled[SiteNode("plant-7")]

    async with served(front.app) as url, without_websockets(url) as proxied:
        link = await begin(proxied)
        assert await begin(proxied) is link, "to central it was one connection"
        assert link.task is not None
        link.task.cancel()
        await asyncio.gather(link.task, return_exceptions=True)


async def test_queue_for_a_polling_site_is_limited(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_S", 3600)
    monkeypatch.setattr(connections, "SILENCE_S", 3600)
    backend = front.app.state.backend
    async with served(front.app) as url, without_websockets(url) as proxied:
        client = client_of(front, proxied, lambda message: None)
        async with running(client):
            await until(lambda: client.is_connected and backend.commands.connections.of("plant-7"))
            link = backend.commands.connections.of("plant-7")
            for number in range(connections.WAITING_MAX):
                await link.send(Refusal("x", str(number)))
            with pytest.raises(Unavailable, match="is not polling"):
                await link.send(Refusal("x", "one too many"))
        link.task.cancel()
        await asyncio.gather(link.task, return_exceptions=True)


async def test_a_websocket_is_tried_again_after_a_while(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "WEBSOCKET_AGAIN_S", 0.3)
    async with served(front.app) as url, without_websockets(url) as proxied:
        token, at = front.tokens["site"], {"url": proxied}
        client = ControlClient(
            lambda: Endpoint(at["url"], token), lambda message: asyncio.sleep(0), SystemClock(), Random(1), 0.05
        )
        async with running(client):
            await until(lambda: client.is_connected)
            assert isinstance(client._connection, polling.Polling)
            at["url"] = url
            await until(lambda: client.is_connected and not isinstance(client._connection, polling.Polling))


@pytest.mark.threat(1)
async def test_post_requires_a_site_token(front: Front) -> None:
    async with served(front.app) as url, aiohttp.ClientSession() as http:
        for headers in ({}, {"Authorization": f"Bearer {front.tokens['viewer']}"}):
            async with http.post(f"{url}/link/v1/control", data=b'{"t":"hello"}', headers=headers) as answer:
                assert answer.status == 401
    assert front.app.state.backend.commands.connections.sites == []
