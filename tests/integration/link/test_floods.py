"""What one sender may take of central: too much, too slow and too many are turned away, and the others are served."""

import asyncio
import os
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from structlog.testing import capture_logs

from fieldpost.clock import Clock
from fieldpost.core.errors import Unavailable
from fieldpost.front import http_limits, websocket_limits
from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from fieldpost.link.client import LinkClient
from fieldpost.link.codec import encode
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, Refusal, Submit
from fieldpost.link.session import RATE_FLOOR, LinkSession
from fieldpost.testing import ManualClock
from support.front import ADMIN, Front, served
from support.line import DEADLINE_S, Line, Raw, receive, submit_of, without_bugs
from support.running_central import until

BINARY, CONTINUATION, FINAL, COMPRESSED = 0x02, 0x00, 0x80, 0x40


@pytest.fixture
async def hasty(front: Front, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Line]:
    """A central that waits for nobody."""
    async with serving(front, caplog, FrontOptions(header_s=1.0, body_grace_s=1.0)) as line:
        yield line


@asynccontextmanager
async def serving(
    front: Front, caplog: pytest.LogCaptureFixture, options: FrontOptions, clock: Clock | None = None
) -> AsyncIterator[Line]:
    """The application with these options; afterwards it is alive."""
    app = create_app(front.operate, front.watch, front.centre.ingest, front.commands, options, clock)
    with without_bugs(caplog):
        async with served(app, options) as url, aiohttp.ClientSession(base_url=url) as http:
            line = Line(front, url, http)
            line.allowances = app.state.backend.allowances
            yield line
            assert await line.is_alive()


async def drip(raw: Raw, data: bytes, every_s: float, size: int = 1) -> None:
    """Send in small pieces, until all is sent or something is heard."""
    for start in range(0, len(data), size):
        await raw.send(data[start : start + size])
        if await raw.heard(every_s):
            return


@asynccontextmanager
async def opened(line: Line, token: str | None = None, *head: str) -> AsyncIterator[Raw]:
    """A WebSocket of which we make the frames by hand, past its greeting."""
    upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    async with line.raw() as raw:
        await raw.send(line.head(*upgrade, key, *head, token=token, path="/link/v1/data", method="GET"))
        assert (await raw.reply()).status == 101
        assert (await next_frame(raw))[0] == BINARY
        yield raw


def frame(data: bytes, kind: int = FINAL | BINARY) -> bytes:
    """As a client sends it, masked with nothing."""
    size = len(data)
    if size < 126:
        return bytes([kind, 0x80 | size]) + bytes(4) + data
    length = struct.pack("!BH", 0x80 | 126, size) if size < 65536 else struct.pack("!BQ", 0x80 | 127, size)
    return bytes([kind]) + length + bytes(4) + data


async def next_frame(raw: Raw) -> tuple[int, bytes]:
    """Kind and content of the next frame; pings are overheard, and the end counts as a frame of kind -1."""
    try:
        while True:
            kind, size = await raw.exactly(2)
            if size == 126:
                size = struct.unpack("!H", await raw.exactly(2))[0]
            data = await raw.exactly(size)
            if kind & 0x0F != 0x09:
                return kind & 0x0F, data
    except EOFError:
        return -1, b""


async def close_code(raw: Raw) -> int | None:
    kind, data = await next_frame(raw)
    return struct.unpack("!H", data[:2])[0] if kind == 0x08 else None


@pytest.mark.threat(2)
async def test_missing_head_times_out(hasty: Line) -> None:
    head = hasty.head("Content-Length: 2")
    async with hasty.raw() as silent, hasty.raw() as half, hasty.raw() as slow, hasty.raw() as empty:
        await half.send(head[:50])
        await asyncio.gather(drip(slow, head * 9, 0.02), drip(empty, b"\r\n" * 1000, 0.02, 2))
        assert await silent.end() == b""
        for raw in (half, slow):
            reply = await raw.reply()
            assert (reply.status, reply.code) == (408, "http.too_slow")
            assert await raw.end() == b""
        await empty.end()


@pytest.mark.threat(2)
async def test_idle_connection_between_requests_is_closed(hasty: Line) -> None:
    content = submit_of()
    request = hasty.head(f"Content-Length: {len(content)}") + content
    async with hasty.raw() as raw:
        for _ in range(2):
            await raw.send(request)
            assert (await raw.reply()).status == 200
        await drip(raw, b"\r\n" * 1000, 0.02, 2)
        await raw.end()
    async with hasty.raw() as raw:
        # Refused before its body came; the body is thrown away, and then the connection is as idle as any.
        await raw.send(hasty.head(f"Content-Length: {len(content)}", token="x"))
        assert (await raw.reply()).status == 401
        await drip(raw, content, 0.001)
        await raw.end()


@pytest.mark.threat(2)
async def test_a_head_has_a_limit(line: Line) -> None:
    much = "x" * (http_limits.HEAD_BYTES_MAX + 1)
    heads = {
        "one header": line.head(f"X-Much: {much}"),
        "many headers": line.head(*["X-Some: some"] * 2000),
        "a long path": line.head(path="/" + much),
        "a header without end": line.head(f"X-Much: {much}")[:-4],
        "a name without end": line.head(much)[:-4],
        "a path without end": b"GET /" + much.encode(),
        "an upgrade": line.head("Upgrade: websocket", "Connection: Upgrade", f"X-Much: {much}"),
    }
    for name, head in heads.items():
        async with line.raw() as raw:
            await raw.send(head)
            reply = await raw.reply()
            assert (name, reply.status, reply.code) == (name, 431, "http.head_too_large")
            assert await raw.end() == b""


@pytest.mark.threat(2)
async def test_a_head_without_end_is_cut_off(line: Line) -> None:
    async with line.raw() as raw:
        await raw.send(line.head()[:-2])
        sent = 0
        while not raw.has_heard and sent < 16 * 1024 * 1024:
            await raw.send(b"X-More: more\r\n" * 1000)
            sent += 14_000
        assert sent < 16 * 1024 * 1024


@pytest.mark.threat(2)
async def test_upgrade_with_a_long_header_is_rejected_without_a_bug(line: Line) -> None:
    upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    wrong = {
        "a long header": [*upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "X-Long: " + "x" * 10_000],
        "many headers": [*upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", *["A: b"] * 500],
        "no key": upgrade,
        "a bad key": [*upgrade, "Sec-WebSocket-Key: nonsense"],
        "another version": [*upgrade[:2], "Sec-WebSocket-Version: 7", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="],
    }
    for name, lines in wrong.items():
        async with line.raw() as raw:
            await raw.send(line.head(*lines, path="/link/v1/data", method="GET"))
            first, _, _ = (await raw.end()).partition(b"\r\n")
            assert (name, first[:10]) == (name, b"HTTP/1.1 4")


@pytest.mark.threat(2)
async def test_a_body_that_drips_is_cut_off_and_a_slow_one_arrives(hasty: Line) -> None:
    content = submit_of(hasty.front.centre.item(body="x" * 6000))
    head = hasty.head(f"Content-Length: {len(content)}")
    async with hasty.raw() as dripping, hasty.raw() as slow:
        await asyncio.gather(dripping.send(head), slow.send(head))
        pace = 4 * RATE_FLOOR
        await asyncio.gather(
            drip(dripping, content, 0.02), drip(slow, content, 100 / pace, 100)
        )  # the slow one takes 3 s, three times the grace
        assert (await dripping.reply()).status == 408
        assert (await slow.reply()).status == 200
    assert await hasty.rows() == (1, 1)


@pytest.mark.threat(2)
async def test_a_frame_that_drips_ends_its_connection_and_a_slow_one_arrives(hasty: Line) -> None:
    content = frame(submit_of(hasty.front.centre.item(body="x" * 6000)))
    async with opened(hasty) as dripping, opened(hasty) as slow:
        await asyncio.gather(drip(dripping, content, 0.02), drip(slow, content, 100 / (4 * RATE_FLOOR), 100))
        assert await close_code(dripping) == 1008
        assert (await next_frame(slow))[0] == BINARY
    assert await hasty.rows() == (1, 1)


async def test_peer_need_not_answer_pings_during_a_long_frame(
    front: Front, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow line one frame takes longer than a ping may."""
    init = http_limits.LimitedConfig.__init__

    def quick_pings(self: http_limits.LimitedConfig, *args: object, **settings: object) -> None:
        init(self, *args, **settings | {"ws_ping_interval": 0.1, "ws_ping_timeout": 1.2})  # type: ignore[arg-type]

    monkeypatch.setattr(http_limits.LimitedConfig, "__init__", quick_pings)
    async with serving(front, caplog, FrontOptions()) as line:
        content = frame(submit_of(front.centre.item(body="x" * 3000)))
        async with opened(line) as slow, opened(line) as gone:
            await gone.send(content[:100])
            for start in range(0, len(content), 100):
                await slow.overhear(0.08)
                await slow.send(content[start : start + 100])
            assert (await next_frame(slow))[0] == BINARY
            assert await close_code(gone) == 1011
    assert (await line.rows())[0] == 2


@pytest.mark.threat(2)
async def test_number_of_frames_of_a_message_is_limited(line: Line) -> None:
    much = os.urandom(1024 * 1024)
    async with opened(line) as raw:
        await raw.send(frame(much, BINARY))
        for _ in range(FRAME_BYTES_MAX // len(much)):
            await raw.send(frame(much, CONTINUATION))
        assert await close_code(raw) in (1009, None)
    async with opened(line) as raw:
        await raw.send(frame(b"", BINARY))
        nothing, sent = frame(b"", CONTINUATION) * 10_000, 0
        while not raw.is_ended and sent < 4 * websocket_limits.MESSAGE_BYTES_MAX:
            await raw.send(nothing)
            sent += len(nothing)
        assert raw.is_ended
        assert await close_code(raw) in (1009, None)


@pytest.mark.threat(2)
async def test_consecutive_messages_do_not_count_as_one_long_message(line: Line) -> None:
    """Each begins in the same piece of data in which the one before ends."""
    items = [line.front.centre.item(body="x" * 250_000) for _ in range(4)]
    stream = b"".join(frame(submit_of(*items, seq=seq)) for seq in range(12))
    async with opened(line) as raw:
        sending = asyncio.create_task(raw.send(stream))
        for _ in range(12):
            kind, data = await next_frame(raw)
            assert (kind, b'"t":"ack"' in data) == (BINARY, True)
        await sending


@pytest.mark.bad_input(16)
@pytest.mark.threat(2)
async def test_frame_with_unnegotiated_compression_ends_its_connection_unread(line: Line) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    bomb = packer.compress(bytes(64 * 1024 * 1024)) + packer.flush(zlib.Z_SYNC_FLUSH)
    async with opened(line, None, "Sec-WebSocket-Extensions: permessage-deflate") as raw:
        await raw.send(frame(bomb[:-4], FINAL | COMPRESSED | BINARY))
        # Central agrees to no compression but the link's own: such a frame breaks the protocol, and is not unpacked.
        assert await close_code(raw) == 1002


@pytest.mark.threat(2)
async def test_pipelined_requests_are_limited(line: Line) -> None:
    request = line.head(path="/healthz", method="GET")
    async with line.raw() as raw:
        await raw.send(request * 5)
        assert [(await raw.reply()).status for _ in range(5)] == [200] * 5
    async with line.raw() as raw:
        await raw.send(request * 1000)
        ended = await raw.end()
    assert ended.count(b"HTTP/1.1 ") < 20
    assert b"http.pipelined" in ended


@pytest.mark.threat(2)
async def test_connections_are_limited_and_ended_ones_make_room(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(front, caplog, FrontOptions(connections_max=6)) as line:
        async with opened(line), AsyncExitStack() as stack:
            for _ in range(5):
                busy = await stack.enter_async_context(line.raw())
                await busy.send(line.head("Content-Length: 9"))
            assert not await busy.heard(0.2)
            async with line.raw() as seventh:
                reply = await seventh.reply()
                assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "http.busy", "5")
                assert await seventh.end() == b""
        async with asyncio.timeout(DEADLINE_S):
            while not await has_room(line, 4):
                pass
        # Those that asked have gone, too.
        await until(lambda: is_served(line), what="room for an honest site")


@pytest.mark.threat(2)
async def test_the_connection_that_waited_longest_for_a_request_makes_room(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(front, caplog, FrontOptions(connections_max=6)) as line, AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(line.raw()) for _ in range(6)]
        assert not await idle[-1].heard(0.4)
        async with line.raw() as seventh:
            await seventh.send(line.head(path="/healthz", method="GET"))
            assert (await seventh.reply()).status == 200
            assert await idle[0].end() == b""
            await seventh.send(line.head(path="/login", method="GET"))
            reply = await seventh.reply()
            assert (reply.status, reply.code) == (503, "http.busy"), "the last quarter is for sites"


@pytest.mark.threat(2)
async def test_a_flood_does_not_fill_the_log(line: Line) -> None:
    with capture_logs() as lines:
        for _ in range(20):
            async with line.raw() as raw:
                await raw.send(b"nonsense\r\n\r\n")
                assert (await raw.reply()).status == 400
    [told] = [one for one in lines if one["event"] == "connection.refused"]
    assert (told["code"], told["client"], told["count"]) == ("http.malformed", "127.0.0.1", 1)


async def is_served(line: Line) -> bool:
    try:
        return await line.is_alive()
    except aiohttp.ClientError:
        return False


async def has_room(line: Line, count: int) -> bool:
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(line.raw()) for _ in range(count)]
        return not any([await raw.heard(0.05) for raw in opened])


@pytest.mark.threat(2)
async def test_connections_are_limited_per_site(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    other = (await front.operate.sites.add(ADMIN, "plant-8")).token
    content = submit_of()
    async with serving(front, caplog, FrontOptions(connections_per_site=2)) as line, AsyncExitStack() as stack:
        first = await stack.enter_async_context(line.websocket())
        body = await stack.enter_async_context(line.raw())
        await body.send(line.head(f"Content-Length: {len(content)}"))
        async with asyncio.timeout(DEADLINE_S):
            while (reply := await line.post(content)).status == 200:  # until the other's head has been read
                if body.has_heard:  # in the middle of one of these, and so it was itself one too many
                    body = await stack.enter_async_context(line.raw())
                    await body.send(line.head(f"Content-Length: {len(content)}"))
        assert (reply.status, reply.code, reply.headers["Retry-After"]) == (429, "link.connections", "5")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await stack.enter_async_context(line.websocket())
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "5")
        client = LinkClient(lambda: Endpoint(line.url, line.token), LinkSession(), front.clock)
        with pytest.raises(Unavailable, match="429"):
            await client.submit([front.centre.item()])
        await client.close()
        async with line.websocket(other) as theirs:
            await theirs.send_bytes(content)
            assert isinstance(await receive(theirs), Ack)
        await body.send(content)
        assert (await body.reply()).status == 200
        assert (await line.post(content)).status == 200
        await first.close()


@pytest.mark.threat(2)
async def test_site_over_its_rate_is_deferred_and_no_other(
    front: Front, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    other = (await front.operate.sites.add(ADMIN, "plant-8")).token
    options = FrontOptions(items_per_s=10, burst_s=2)
    async with serving(front, caplog, options, clock) as line, line.websocket() as websocket:
        batch = [front.centre.item() for _ in range(50)]
        await websocket.send_bytes(encode(Submit(1, tuple(batch))))
        assert isinstance(await receive(websocket), Ack), "no batch is too large ever to pass"
        more = encode(Submit(2, (front.centre.item(),)))
        await websocket.send_bytes(more)
        refusal = await receive(websocket)
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.seq, refusal.wait_s) == ("link.quota", 2, pytest.approx(3))
        reply = await line.post(more)
        assert (reply.status, reply.code, reply.headers["Retry-After"]) == (429, "link.quota", "3")
        assert await line.status(batch[0].notification_id) == 429
        assert isinstance(await line.tell("post", submit_of(front.centre.item()), other), Ack)
        assert await line.rows() == (51, 51), "nothing of it was taken"
        await clock.wait_sleepers()  # the connection is not read for a moment
        clock.advance(2.9)
        assert (await line.post(more)).headers["Retry-After"] == "1"
        clock.advance(0.1)
        await websocket.send_bytes(more)
        assert isinstance(await receive(websocket), Ack)
        clock.advance(60)


@pytest.mark.threat(2)
async def test_bytes_of_invalid_messages_count_too(
    front: Front, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    options = FrontOptions(bytes_per_s=1000, burst_s=10)
    async with serving(front, caplog, options, clock) as line:
        async with line.websocket() as websocket:
            await websocket.send_str("x" * 6_000)
            await websocket.send_bytes(b"\xff" * 6_000)
            codes = []
            await websocket.send_bytes(submit_of())
            for _ in range(3):
                refusal = await receive(websocket)
                assert isinstance(refusal, Refusal)
                codes.append(refusal.code)
            assert codes == ["link.invalid", "json.not_utf8", "link.quota"]
        await clock.wait_sleepers()
        clock.advance(60)
        assert (await line.post(b"x" * 11_000)).status == 400
        assert (await line.post(submit_of())).status == 429
        clock.advance(60)
