"""The HTTP server for tests does what its rules say, seen from a plain socket and from a client."""

import asyncio
import json
import re
import socket
import ssl
import urllib.request
from typing import Any

import aiohttp
import pytest
import trustme

from fieldpost.testing import HttpServer, HttpServerThread, ManualClock, ReceivedRequest
from fieldpost.testing.http import HttpReaction


async def ask(server: HttpServer, request: bytes = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
    """What comes back until the server closes, or the first answer with its body."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if (length := re.search(rb"content-length: (\d+)", head, re.IGNORECASE)) is None:
            raise ValueError(f"no length in {head!r}")
        return head + await reader.readexactly(int(length.group(1)))
    finally:
        writer.close()


async def test_server_records_every_request_unchanged() -> None:
    async with HttpServer() as server:
        body = b'{"a": 1}'
        head = f"POST /orders?x=%20 HTTP/1.1\r\nHost: x\r\nX-A: b\r\nContent-Length: {len(body)}\r\n\r\n"
        assert (await ask(server, head.encode() + body)).startswith(b"HTTP/1.1 200 OK\r\n")
        (request,) = await server.received(1)
        assert (request.method, request.path, request.query) == ("POST", "/orders", "x=%20")
        assert (request.headers["x-a"], request.body, request.connection) == ("b", body, 1)


async def test_rules_are_applied_in_order_and_used_up() -> None:
    async with HttpServer() as server:
        server.on("POST").answer(500)
        twice = server.on("GET", "/a").answer(503, "busy", {"Retry-After": "2"}).times(2)
        server.on(path="/a", when=lambda request: request.query == "b=c").answer(404).times(1)
        answers = [await ask(server) for _ in range(4)]
        assert [answer[9:12] for answer in answers] == [b"503", b"503", b"404", b"200"]
        assert answers[0].endswith(b"busy")
        assert b"Retry-After: 2" in answers[0]
        assert twice.hits == 2
        server.on().answer(418)
        server.behave()
        assert (await ask(server))[9:12] == b"200"


async def test_connections_stay_open_and_chunks_are_read() -> None:
    async with HttpServer() as server, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(server.url + "/x", data=_pieces()) as answer:
                assert answer.status == 200
        assert [request.body for request in server.requests] == [b"onetwo", b"onetwo"]
        assert server.connection_count == 1
        server.close_connections()
        await server.idle()


async def _pieces() -> Any:
    for piece in (b"one", b"two"):
        yield piece


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_server_can_close_without_an_answer(how: str) -> None:
    async with HttpServer() as server:
        getattr(server.on(), how)()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)) as caught:
            await ask(server)
        assert isinstance(caught.value, ConnectionResetError) is (how == "reset")
        assert len(server.requests) == 1


async def test_server_can_hang_until_the_client_leaves_or_an_event() -> None:
    async with HttpServer() as server:
        server.on().hang().times(1)
        asking = asyncio.create_task(ask(server))
        await server.received(1)
        await asyncio.wait([asking], timeout=0.05)
        assert not asking.done()
        asking.cancel()
        await asyncio.wait([asking])
        await server.idle()
        event = asyncio.Event()
        server.on().answer(202).wait(event)
        asking = asyncio.create_task(ask(server))
        await server.received(2)
        assert not asking.done()
        event.set()
        assert (await asking)[9:12] == b"202"


async def test_delays_and_drips_use_the_clock_of_the_server() -> None:
    clock = ManualClock()
    async with HttpServer(clock=clock) as server:
        server.on(path="/a").answer(200, "slow").delay(30)
        asking = asyncio.create_task(ask(server))
        await clock.wait_sleepers(1)
        clock.advance(29)
        await clock.wait_sleepers(1)
        assert not asking.done()
        clock.advance(1)
        assert (await asking).endswith(b"slow")
        server.behave()
        server.on().answer(200, b"").drip(1)
        asking = asyncio.create_task(ask(server))
        answer = HttpReaction().answer
        for _ in range(len(answer) - 1):
            await clock.wait_sleepers(1)
            assert not asking.done()
            clock.advance(1)
        await clock.wait_sleepers(1)
        assert await asking == answer


async def test_server_can_send_any_bytes_and_huge_answers() -> None:
    async with HttpServer() as server:
        server.on().raw(b"nonsense\r\n\r\n").then_close().times(1)
        with pytest.raises(ValueError, match="no length in b'nonsense"):
            await ask(server)
        server.on().huge(1_000_000).times(1)
        assert len(await ask(server)) > 1_000_000
        server.on().redirect("https://elsewhere.example/").times(1)
        assert b"Location: https://elsewhere.example/" in await ask(server)


async def test_stopped_server_is_unreachable_and_restarts_on_the_same_port() -> None:
    async with HttpServer() as server:
        port = server.port
        await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await ask(server)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            # It is not there, and its port is still its own.
            other.bind((server.host, port))
        await server.start()
        assert server.port == port
        assert (await ask(server))[9:12] == b"200"


async def test_error_in_a_predicate_of_the_test_is_raised_at_the_end() -> None:
    def wrong(request: ReceivedRequest) -> bool:
        raise KeyError(request.method)

    server = await HttpServer().__aenter__()
    server.on(when=wrong).answer(200)
    with pytest.raises(asyncio.IncompleteReadError):
        await ask(server)
    with pytest.raises(KeyError):
        await server.__aexit__(None, None, None)


def test_server_in_a_thread_with_tls_serves_synchronous_clients() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    def echo(request: ReceivedRequest) -> HttpReaction:
        return HttpReaction(body=json.dumps({"path": request.path}).encode())

    with HttpServerThread(tls=context, on_request=echo) as server:
        with urllib.request.urlopen(server.url + "/x", context=trusting, timeout=10) as answer:
            assert json.load(answer) == {"path": "/x"}
        assert [request.path for request in server.received(1)] == ["/x"]
