"""Receivers whose answers never end or are not what their headers say."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.core.delivery.outcome import Delivered, Evidence, Outcome
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import HttpServer
from support.webhooks import webhook

PIECE = 16 * 1024
SENT_MAX = 16 * 1024 * 1024
"""Far less than 5 GB, and more than the socket buffers of both ends take on."""
MEMORY_MAX = 4 * 1024 * 1024
ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n", b"x" * PIECE),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4000\r\n" + b"x" * PIECE + b"\r\n"),
    "failed body": (b"HTTP/1.1 500 No\r\nContent-Length: 5000000000\r\n\r\n", b"x" * PIECE),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-Filler: " + b"x" * 100 + b"\r\n"),
    "header": (b"HTTP/1.1 200 OK\r\nX-Filler: ", b"x" * PIECE),
    "status line": (b"HTTP/1.1 200 ", b"x" * PIECE),
    "informational": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "chunk extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4000;", b"x" * PIECE),
}


class EndlessServer:
    """Answers each request with a beginning and then with the same bytes until the client disconnects."""

    def __init__(self, begin: bytes, again: bytes) -> None:
        self.sent = 0
        self.calls = 0
        self.url = ""
        self._begin = begin
        self._again = again

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.calls += 1
            writer.write(self._begin)
            while not reader.at_eof() and self.sent < SENT_MAX:
                writer.write(self._again)
                self.sent += len(self._again)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def endless(kind: str) -> AsyncIterator[EndlessServer]:
    made = EndlessServer(*ENDLESS[kind])
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/in"
    async with server:
        yield made


async def deliver(url: str, outbound: Outbound, **settings: Any) -> Outcome:
    return await WebhookAdapter(outbound=outbound, deadline_s=5.0).deliver(webhook(url, **settings))


@pytest.fixture
async def outbound() -> AsyncIterator[Outbound]:
    outbound = Outbound(OutboundOptions(allow="127.0.0.1"))
    yield outbound
    await outbound.close()


@pytest.mark.fault(49)
@pytest.mark.threat(18)
@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_endless_answer_is_cut_off_in_little_memory(outbound: Outbound, kind: str) -> None:
    async with endless(kind) as server, asyncio.timeout(30):
        tracemalloc.start()
        try:
            outcome = await deliver(server.url, outbound, quick_tries=0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert server.calls == 1
        assert server.sent < SENT_MAX, "the connection is closed, not read to the end"
    assert peak < MEMORY_MAX
    if kind in ("body", "chunks", "chunk extension"):
        assert isinstance(outcome, Delivered)
        assert len(outcome.exchanges[0].response_body) <= 1024
    else:
        assert not isinstance(outcome, Delivered)
        assert outcome.evidence is Evidence.FAILS


@pytest.mark.fault(52)
@pytest.mark.parametrize(
    "tail",
    [b"more than promised", b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"],
    ids=["garbage", "answer to the next request"],
)
async def test_bytes_after_an_answer_do_not_answer_the_next_request(outbound: Outbound, tail: bytes) -> None:
    """Subscriptions of different owners may share a host, and therefore a connection."""
    async with HttpServer() as server:
        server.on().raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + tail).times(1)
        for _ in range(2):
            outcome = await deliver(f"{server.url}/in", outbound, quick_tries=0)
            assert isinstance(outcome, Delivered), outcome
        assert [request.number for request in server.requests] == [1, 2]


@pytest.mark.fault(52)
@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: -5\r\n",
        b"Content-Length: five\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Encoding: br\r\nContent-Length: 2\r\n",
        b"Content-Length: 1\r\n",
        b"no header\r\n",
    ],
)
async def test_2xx_status_line_is_success_with_any_continuation(outbound: Outbound, head: bytes) -> None:
    """The receiver has the webhook; its answer is malformed after the status."""
    async with HttpServer() as server:
        server.on().raw(b"HTTP/1.1 200 OK\r\n" + head + b"\r\nok").then_close()
        outcome = await deliver(f"{server.url}/in", outbound, quick_tries=0)
        assert isinstance(outcome, Delivered), outcome
        server.behave()
        assert isinstance(await deliver(f"{server.url}/in", outbound), Delivered)
