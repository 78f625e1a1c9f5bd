"""A failed request names its phase. 127.0.0.2 stands for a public address."""

import asyncio
import socket
import ssl
import struct
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
import trustme

from fieldpost.outbound.client import HttpClient, NoAnswer
from fieldpost.outbound.guard import AddressGuard, Blocked, Resolve
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.progress import HttpPhase
from fieldpost.outbound.ranges import parse_allowed
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.outbound.url import check_url

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")

PUBLIC = "127.0.0.2"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def found(host: str, port: int) -> Sequence[str]:
    return [PUBLIC]


def failing(error: OSError) -> Resolve:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise error

    return resolve


async def never(host: str, port: int) -> Sequence[str]:
    await asyncio.Event().wait()
    raise AssertionError


def blocked(name: str) -> Sequence[str]:
    threading.Event().wait(5)
    return [PUBLIC]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def garbled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n" * 20)
    await silent(reader, writer)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, PUBLIC, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def fail(url: str, resolve: Resolve = found, timeout_s: float = 30.0) -> NoAnswer:
    http = HttpClient(AddressGuard("strict", parse_allowed([PUBLIC]), resolve))
    try:
        with pytest.raises(NoAnswer) as caught:
            await http.request("POST", check_url(url, "strict"), headers={}, body=b"hello", timeout_s=timeout_s)
        return caught.value
    finally:
        await http.close()


@pytest.mark.parametrize(
    ("resolve", "is_timeout", "reason"),
    [
        (failing(socket.gaierror(socket.EAI_NONAME, "Name or service not known")), False, "Name or service not known"),
        (never, True, "no answer from the name server within 0.3 s"),
        (SystemResolver(0.1, look_up=blocked), False, "was not resolved within 0.1 s"),
    ],
    ids=["unknown", "deadline of the request", "deadline of the lookup"],
)
async def test_failed_name_resolution(resolve: Resolve, is_timeout: bool, reason: str) -> None:
    error = await fail("http://hook.example/", resolve, 0.3)
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.RESOLVE, is_timeout, False)
    assert reason in error.reason


async def test_denied_address_is_blocked() -> None:
    http = HttpClient(AddressGuard("strict", None, found))
    with pytest.raises(Blocked):
        await http.request("POST", check_url("http://hook.example", "strict"), headers={}, body=b"", timeout_s=30)
    await http.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["hook.example", PUBLIC])
async def test_refused_connection(scheme: str, host: str) -> None:
    error = await fail(f"{scheme}://{host}:1024/")
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.CONNECT, False, False)
    assert error.reason == f"no connection to {host}:1024: Connection refused"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_connection_that_is_not_accepted(scheme: str) -> None:
    """A listener whose queue is full: the kernel drops further connections."""
    fillers = [socket.socket() for _ in range(4)]
    with socket.socket() as listener:
        listener.bind((PUBLIC, 0))
        listener.listen(0)
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        error = await fail(f"{scheme}://hook.example:{listener.getsockname()[1]}/", timeout_s=0.5)
    for filler in fillers:
        filler.close()
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.CONNECT, True, False)
    assert error.reason == "no connection within 0.5 s"


@pytest.mark.parametrize(
    ("handler", "is_timeout"), [(silent, True), (closing, False), (resetting, False), (garbled, False)]
)
async def test_failed_handshake(handler: Handler, is_timeout: bool) -> None:
    async with serving(handler) as port:
        error = await fail(f"https://hook.example:{port}/", timeout_s=0.5 if is_timeout else 30)
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.TLS, is_timeout, False)


async def test_untrusted_certificate() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("hook.example").configure_cert(context)
    server = await asyncio.start_server(silent, PUBLIC, 0, ssl=context)
    error = await fail(f"https://hook.example:{server.sockets[0].getsockname()[1]}/")
    server.close()
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.TLS, False, False)
    assert "certificate" in error.reason


@pytest.mark.parametrize(("handler", "is_timeout"), [(silent, True), (closing, False)])
async def test_no_answer_to_a_request_that_was_sent(handler: Handler, is_timeout: bool) -> None:
    async with serving(handler) as port:
        error = await fail(f"http://hook.example:{port}/", timeout_s=0.5 if is_timeout else 30)
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.ANSWER, is_timeout, True)


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def test_request_of_which_a_part_is_left_here_was_not_sent() -> None:
    """More than the buffers of both ends take: the receiver cannot have it, so it is not in doubt whether it has."""
    http = HttpClient(AddressGuard("strict", parse_allowed([PUBLIC]), found))
    async with serving(deaf) as port:
        url = check_url(f"http://hook.example:{port}/", "strict")
        with pytest.raises(NoAnswer, match="the request was not sent within 2 s") as caught:
            await http.request("POST", url, headers={}, body=bytes(32 * 1024 * 1024), timeout_s=2)
        await http.close()
    assert (caught.value.phase, caught.value.is_timeout, caught.value.is_sent) == (HttpPhase.SEND, True, False)


async def test_bytes_on_an_idle_connection_close_it() -> None:
    """Nobody asked for them, so they must not answer the next request."""
    connections = []

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"hello")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    http = HttpClient(AddressGuard("strict", parse_allowed([PUBLIC]), found))
    async with serving(talkative) as port:
        url = check_url(f"http://hook.example:{port}/", "strict")
        for _ in range(2):
            assert (await http.request("POST", url, headers={}, body=b"hello", timeout_s=30)).status == 200
        assert (len(connections), http._pool.idle_count) == (1, 1)
        connections[0].write(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
        async with asyncio.timeout(30):
            while http._pool.idle_count:
                await asyncio.sleep(0.01)
        assert (await http.request("POST", url, headers={}, body=b"hello", timeout_s=30)).status == 200
        assert len(connections) == 2
        await http.close()


@pytest.mark.parametrize("text", ["a\r\nHost: other.example", "a\nb", "a\0"])
async def test_header_that_would_break_the_request_is_not_sent(text: str) -> None:
    http = HttpClient(AddressGuard("strict", parse_allowed([PUBLIC]), found))
    url = check_url("http://hook.example:1024/", "strict")
    with pytest.raises(NoAnswer, match="line break") as caught:
        await http.request("POST", url, headers={"X-Text": text}, body=b"", timeout_s=30)
    assert not caught.value.is_sent


@pytest.mark.parametrize("options", [OutboundOptions(connections_per_host=1), OutboundOptions(connections=1)])
async def test_no_free_connection(options: OutboundOptions) -> None:
    http = HttpClient(AddressGuard("strict", parse_allowed([PUBLIC]), found), None, options)
    async with serving(silent) as port:
        url = check_url(f"http://hook.example:{port}/", "strict")
        first = asyncio.ensure_future(http.request("POST", url, headers={}, body=b"", timeout_s=30))
        await asyncio.sleep(0)
        with pytest.raises(NoAnswer, match=r"no free connection within 0\.2 s") as caught:
            await http.request("POST", url, headers={}, body=b"", timeout_s=0.2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await http.close()
    error = caught.value
    assert (error.phase, error.is_timeout, error.is_sent) == (HttpPhase.QUEUE, True, False)
