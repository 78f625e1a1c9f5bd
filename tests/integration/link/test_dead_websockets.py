"""WebSockets whose peer is dead or does not read: they count until their socket is gone, and nothing piles up."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from fieldpost.front import websocket_limits
from fieldpost.front.options import FrontOptions
from fieldpost.front.websocket_limits import BoundedWebSocket
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.hostile import hostile, target_of
from support.hostile_peers import PING
from support.line import without_bugs

pytestmark = [
    pytest.mark.threat(28),
    pytest.mark.skipif(sys.platform != "linux", reason="needs many loopback addresses and /proc"),
]
MIB = 1024 * 1024


@pytest.fixture
async def front(sqlite_url: str) -> AsyncIterator[Front]:
    async with open_front(sqlite_url, ManualClock()) as opened:
        yield opened


def accepted(connections: set[object]) -> list[BoundedWebSocket]:
    """The WebSockets that were accepted, whether the application still serves them or not."""
    found = [one for one in connections if isinstance(one, BoundedWebSocket)]
    return [one for one in found if one.handshake_complete and one.initial_response is None]


async def flood(writer: asyncio.StreamWriter) -> None:
    """Send pings for 120 MB; TimeoutError when nothing is taken for two seconds."""
    for _ in range(120 * MIB // len(PING) // 1000):
        async with asyncio.timeout(2):
            writer.write(PING * 1000)
            await writer.drain()


async def test_dead_websockets_do_not_pass_the_cap_of_a_site(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """Twenty peers that flood, never read and open again; without the cap on sockets twenty of them were open."""
    options = FrontOptions(header_s=1.0, body_grace_s=0.5, connections_per_site=8)
    most = 0
    with without_bugs(caplog):
        async with target_of(front, options) as target, hostile(target, "ping flood", 20, addresses=4):
            loop = asyncio.get_running_loop()
            until = loop.time() + 3
            while loop.time() < until:
                most = max(most, len(accepted(set(target.server.server_state.connections))))
                await asyncio.sleep(0.01)
            await target.probe()
    assert 0 < most <= 8


async def test_pings_of_a_peer_that_does_not_read_stop_being_read(
    front: Front, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit on their number: the pongs fill the buffers, central stops reading, and the sender is stuck."""
    monkeypatch.setattr(websocket_limits, "CONTROL_FRAMES_MAX", 10**9)
    with without_bugs(caplog):
        async with target_of(front, FrontOptions(body_grace_s=30.0)) as target:
            reader, writer = await asyncio.open_connection(*target.address, limit=1024)
            writer.write(
                b"GET /link/v1/data HTTP/1.1\r\nHost: central\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                b"Authorization: Bearer " + front.tokens["site"].encode() + b"\r\n\r\n"
            )
            assert (await reader.readline()).startswith(b"HTTP/1.1 101")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            before = target.resident
            with pytest.raises(TimeoutError):
                await flood(writer)
            [held] = accepted(set(target.server.server_state.connections))
            assert held.transport.get_write_buffer_size() < MIB
            assert target.resident - before < 20 * MIB
            await target.probe()
            writer.transport.abort()
