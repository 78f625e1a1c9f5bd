"""Messages that make central compute: counted before they are parsed, charged, and forgotten with their connection."""

import zlib

import pytest
from structlog.testing import capture_logs

from fieldpost.front.allowance import VALUES_PER_ITEM
from fieldpost.front.options import FrontOptions
from fieldpost.front.websocket_limits import QUEUE_MAX
from fieldpost.link.codec import encode
from fieldpost.link.messages import Refusal, Submit
from integration.link.test_floods import close_code, frame, next_frame, opened, serving
from support.front import ADMIN, Front
from support.line import Line, receive, submit_of
from support.running_central import until

pytestmark = pytest.mark.threat(31)
BOMB = zlib.compress(b'{"t":"telemetry","x":[' + b"0," * 95_000 + b"0]}", 9)
"""A few hundred bytes that took the strict parser thirty milliseconds."""


async def test_a_small_frame_that_grows_is_refused_before_it_is_parsed(line: Line) -> None:
    assert len(BOMB) < 700
    async with line.websocket() as websocket:
        await websocket.send_bytes(BOMB)
        refusal = await receive(websocket)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "link.ratio"
        values = b'{"t":"telemetry","x":[' + b",".join(b"%d" % number for number in range(20_000)) + b"]}"
        await websocket.send_bytes(zlib.compress(values))
        refusal = await receive(websocket)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "json.too_many"


async def test_values_are_charged_as_items(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """A message of 10,000 values that is refused costs as much as 625 items; without the charge it would be one."""
    values = b'{"t":"submit","seq":1,"items":[],"x":[' + b"0," * 9_999 + b"0]}"
    options = FrontOptions(items_per_s=10.0, burst_s=10.0)
    async with serving(front, caplog, options, front.clock) as line:
        for content, is_charged in ((submit_of(), False), (values, True)):
            await line.post(content)
            reply = await line.post(submit_of())
            assert (reply.status == 429) is is_charged
        front.clock.advance(10_000 / VALUES_PER_ITEM / options.items_per_s)


@pytest.mark.parametrize("is_reset", [True, False], ids=["reset", "closed"])
async def test_messages_of_a_disconnected_sender_are_dropped(
    front: Front, caplog: pytest.LogCaptureFixture, is_reset: bool
) -> None:
    """Forty messages of a site in debt, one second each: without the sender none of them is worth a second."""
    async with serving(front, caplog, FrontOptions(items_per_s=1.0, burst_s=1.0)) as line:
        connections = line.allowances._connections
        async with opened(line) as raw:
            await raw.send(frame(encode(Submit(1, ()))) * 40)
            while b"link.quota" not in (await next_frame(raw))[1]:
                assert not raw.is_ended
            assert connections
            if not is_reset:
                raw.transport.write_eof()
                await until(lambda: not connections, 5, "the connection to be forgotten")
        await until(lambda: not connections, 5, "the connection to be forgotten")
        line.token = (await front.operate.sites.add(ADMIN, "plant-8")).token


async def test_waiting_messages_are_limited(line: Line) -> None:
    content = encode(Submit(1, ()))
    with capture_logs() as logs:
        async with opened(line) as raw:
            await raw.send(frame(content) * (QUEUE_MAX * 4))
            while (code := await close_code(raw)) is None:
                assert not raw.is_ended, "it was closed without a reason"
            assert code == 1008
    assert "websocket.1008" in [log.get("code") for log in logs if log["event"] == "connection.refused"]
    async with opened(line) as raw:
        await raw.send(frame(content) * (QUEUE_MAX // 2))
        assert await close_code(raw) is None
