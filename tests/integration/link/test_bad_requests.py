"""Requests that lie about their bodies: refused, the connection closed, nothing taken in and nothing unpacked."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from fieldpost.front import http_limits
from fieldpost.front.options import FrontOptions
from fieldpost.link.messages import FRAME_BYTES_MAX
from support.front import Front, served
from support.line import DEADLINE_S, Line, submit_of, without_bugs

CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED = "smuggled"


@pytest.fixture
async def hasty(front: Front, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Line]:
    """A central that waits for nobody."""
    options = FrontOptions(header_s=1.0, body_grace_s=1.0)
    with without_bugs(caplog):
        async with served(front.app, options) as url, aiohttp.ClientSession(base_url=url) as http:
            opened = Line(front, url, http)
            yield opened
            assert await opened.is_alive()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def good(line: Line, subject: str = "honest") -> bytes:
    return submit_of(line.front.centre.item(subject=subject))


@pytest.mark.bad_input(16)
async def test_an_encoded_body_is_refused_and_never_unpacked(line: Line) -> None:
    content = good(line)
    encoded = {
        "gzip": gzip.compress(content),
        "x-gzip": gzip.compress(content),
        "deflate": zlib.compress(content),
        "br": content,
        "GZIP": content,
        "identity, gzip": gzip.compress(content),
    }
    for name, body in encoded.items():
        reply = await line.post(body, **{"Content-Encoding": name})
        assert (name, reply.status, reply.code) == (name, 400, "http.content_encoding")
    reply = await line.post(gzip.compress(content))
    assert (reply.status, reply.code) == (400, "json.not_utf8")
    assert await line.rows() == (0, 0)
    assert (await line.post(content, **{"Content-Encoding": "identity"})).status == 200


@pytest.mark.bad_input(16)
async def test_contradictory_lengths_end_the_connection(line: Line) -> None:
    """What one proxy takes for a body another takes for the next request: neither is done."""
    body = good(line)
    smuggled = line.head(f"Content-Length: {len(body)}") + good(line, SMUGGLED)
    size = len(body)
    heads = {
        "both": line.head(f"Content-Length: {size}", CHUNKED) + body,
        "both, the other way round": line.head(CHUNKED, f"Content-Length: {size}") + chunk(body) + chunk(b""),
        "both, and a request behind": line.head("Content-Length: 4", CHUNKED) + chunk(b"") + smuggled,
        "two lengths": line.head(f"Content-Length: {size}", f"Content-Length: {size + 1}") + body,
        "a list of lengths": line.head(f"Content-Length: {size}, {size}") + body,
        "a length below zero": line.head("Content-Length: -1") + body,
        "a length in words": line.head("Content-Length: many") + body,
        "a signed length": line.head(f"Content-Length: +{size}") + body,
        "a length beyond measure": line.head("Content-Length: " + "9" * 400) + body,
        "an unknown transfer": line.head("Transfer-Encoding: gzip") + body,
        "chunked, but not last": line.head("Transfer-Encoding: chunked, gzip") + chunk(body) + chunk(b""),
        "a space before the colon": line.head(f"Content-Length : {size}") + body,
        "a folded head": line.head("X-Other: a", f" Content-Length: {size}") + body,
        "a chunk of no size": line.head(CHUNKED) + b"\r\n" + body,
        "a chunk of a wrong size": line.head(CHUNKED) + b"zz\r\n" + body,
        "a chunk that goes on": line.head(CHUNKED) + b"1\r\n" + body,
        "a chunk below zero": line.head(CHUNKED) + b"-1\r\n" + body,
        "a chunk beyond measure": line.head(CHUNKED) + b"f" * 40 + b"\r\n" + body,
    }
    for name, data in heads.items():
        async with line.raw() as raw:
            await raw.send(data)
            reply = await raw.reply()
            assert (name, reply.status) == (name, 400)
            assert (name, await raw.end()) == (name, b""), "nothing is said after it"
        assert (name, await line.rows()) == (name, (0, 0))


@pytest.mark.bad_input(16)
@pytest.mark.threat(2)
async def test_missing_body_times_out(hasty: Line) -> None:
    body = good(hasty)
    for head in (hasty.head(f"Content-Length: {len(body) + 1}"), hasty.head("Content-Length: 4000000")):
        async with hasty.raw() as raw:
            await raw.send(head + body)
            reply = await raw.reply()
            assert (reply.status, reply.code, reply.headers["connection"]) == (408, "http.too_slow", "close")
            assert await raw.end() == b""
    async with hasty.raw() as raw:
        await raw.send(hasty.head(CHUNKED) + chunk(body))
        assert (await raw.reply()).status == 408
    assert await hasty.rows() == (0, 0)


@pytest.mark.bad_input(16)
async def test_truncated_body_is_not_accepted(line: Line) -> None:
    body = good(line)
    for cut in (0, 1, len(body) - 1):
        async with line.raw() as raw:
            await raw.send(line.head(f"Content-Length: {len(body)}") + body[:cut])
            raw.transport.write_eof()
            await raw.end()
        async with line.raw() as raw:
            await raw.send(line.head(CHUNKED) + chunk(body)[: cut + 4])
            raw.transport.abort()
    assert await line.rows() == (0, 0)


@pytest.mark.bad_input(16)
async def test_body_longer_than_its_length_is_rejected_and_the_rest_is_not_a_request(line: Line) -> None:
    body = good(line)
    async with line.raw() as raw:
        await raw.send(line.head(f"Content-Length: {len(body) - 1}") + body)
        assert (await raw.reply()).status == 400
        assert await raw.end() == b""
    assert await line.rows() == (0, 0)


@pytest.mark.bad_input(16)
@pytest.mark.threat(2)
async def test_oversized_body_is_rejected_at_its_header_and_the_connection_closed(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "LINGER_S", 0.3)
    for announced in (FRAME_BYTES_MAX + 1, 5_000_000_000, 2**62):
        async with line.raw() as raw:
            await raw.send(line.head(f"Content-Length: {announced}"))
            reply = await raw.reply()
            assert (reply.status, reply.code) == (413, "http.too_large")
            async with asyncio.timeout(DEADLINE_S):  # whoever does not stop is cut off
                while not await raw.heard(0.02):
                    await raw.send(b" ")
            assert await raw.end() == b""


@pytest.mark.bad_input(16)
@pytest.mark.threat(2)
async def test_endless_body_is_rejected_and_the_connection_closed(line: Line) -> None:
    piece = chunk(b" " * 65_536)
    async with line.raw() as raw:
        await raw.send(line.head(CHUNKED))

        async def flood() -> None:
            while not raw.is_ended:
                await raw.send(piece)

        flooding = asyncio.create_task(flood())
        try:
            reply = await raw.reply()
            assert (reply.status, reply.code) == (413, "http.too_large")
            assert await raw.end() == b""
        finally:
            flooding.cancel()
    assert await line.rows() == (0, 0)


@pytest.mark.threat(2)
async def test_chunk_extensions_and_trailers_are_limited_too(line: Line) -> None:
    """Chunks have extensions and trailers, which belong to no body and would be kept for ever."""
    endless = {
        "an extension": (b"1;", b"x" * 65_536),
        "trailers": (chunk(b"{}") + b"0\r\n", b"X-Trailer: " + b"x" * 65_000 + b"\r\n"),
        "a trailer": (chunk(b"{}") + b"0\r\nX-Trailer: ", b"x" * 65_536),
        "empty room": (chunk(b"{}") + b"0\r\n", b"a: b\r\n" * 10_000),
    }
    for name, (start, more) in endless.items():
        async with line.raw() as raw:
            await raw.send(line.head(CHUNKED) + start)
            sent = 0
            while not raw.has_heard and sent < 4 * http_limits.REQUEST_BYTES_MAX:
                await raw.send(more)
                sent += len(more)
            assert (name, sent < 4 * http_limits.REQUEST_BYTES_MAX) == (name, True)


@pytest.mark.threat(1)
async def test_trailer_is_not_a_header(line: Line) -> None:
    """Whoever may add a trailer must not become somebody by it."""
    body = good(line)
    nobody = line.head(CHUNKED).replace(line.token.encode(), b"x")
    async with line.raw() as raw:
        trailer = f"Authorization: Bearer {line.token}\r\n".encode()
        await raw.send(nobody + chunk(body) + b"0\r\n" + trailer + b"\r\n")
        assert (await raw.reply()).status == 401
    assert await line.rows() == (0, 0)
