"""A real site over a real line to central: slow, silent, losing answers, away for a day."""

import asyncio
import os
import resource
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import aiohttp
import pytest
from sqlalchemy import Connection, text
from structlog.testing import capture_logs

from fieldpost import Site
from fieldpost.clock import Clock, SystemClock
from fieldpost.core.sites.message import Category
from fieldpost.front import server as front_server
from fieldpost.link import connection, session
from fieldpost.link.client import LinkClient
from fieldpost.link.codec import decode, decompress, encode
from fieldpost.link.control import ControlClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import FRAME_BYTES_MAX, Ack, LinkMessage, Refusal, Submit
from fieldpost.link.session import LinkSession
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.testing import ManualClock
from support.bad_connection import BadLine, bad_line
from support.front import Front, served
from support.line import Line, receive
from support.running_central import until

DEADLINE_S = 30.0


@asynccontextmanager
async def site_over(
    front: Front, url: str, folder: Path, clock: Clock | None = None, interval_s: float = 0.05
) -> AsyncIterator[tuple[Site, Forwarder, LinkSession]]:
    token = front.tokens["site"]
    with Site.create(folder / "site", "plant-7", url, token) as site:
        known, time = LinkSession(), clock or SystemClock()
        client = LinkClient(lambda: Endpoint(url, token), known, time)
        options = ForwardOptions(interval_s=interval_s)
        forwarder = Forwarder(site._buffer, CentralCarrier(client, known), options, time, Random(1))
        try:
            yield site, forwarder, known
        finally:
            await forwarder.close()


def waiting(site: Site) -> int:
    return site._buffer.depth().waiting.get(Category.NOTIFICATION, 0)


def noise(count: int) -> str:
    """Text that cannot be compressed to speak of."""
    return b64encode(os.urandom(count * 3 // 4)).decode()


async def drained(site: Site, forwarder: Forwarder) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while waiting(site):
            await forwarder.sweep()
            await asyncio.sleep(0.05)


async def rows(front: Front) -> list[str]:
    def ids(conn: Connection) -> list[str]:
        found = conn.execute(text("select notification_id from notifications order by notification_id"))
        return [str(row[0]) for row in found]

    return await front.centre.store.read(ids)


@pytest.fixture
async def line(front: Front) -> AsyncIterator[BadLine]:
    async with served(front.app) as url, bad_line(url) as line:
        yield line


@pytest.mark.fault(19)
async def test_batches_shrink_on_a_slow_line_and_every_row_arrives_once(
    front: Front, line: BadLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the time of a fiftieth: 50 kB/s with a tenth of a second to pass stand for 8 kbit/s with five."""
    monkeypatch.setattr(session, "PASS_S", 0.1)
    line.bytes_per_s = 50_000
    async with site_over(front, line.url, tmp_path) as (site, forwarder, known):
        sent = [site.notify.to("ops").send("Pump", noise(1000)) for _ in range(60)]
        await drained(site, forwarder)
        assert known.room().bytes <= 50_000 * 0.1
    assert sorted(await rows(front)) == sorted(sent)
    assert line.connections == 1, "slowness is no reason to hang up"
    assert line.bytes_up < 60 * 1500 * 1.5, "nothing was sent twice"


@pytest.mark.fault(19)
async def test_stalled_batch_is_abandoned_and_resent_without_a_second_row(
    front: Front, line: BadLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ANSWER_S", 0.5)
    monkeypatch.setattr(session, "RATE_FLOOR", 20_000.0)
    async with site_over(front, line.url, tmp_path) as (site, forwarder, _):
        site.notify.to("ops").send("before", "b")
        await drained(site, forwarder)
        sent = [site.notify.to("ops").send("Pump", noise(500)) for _ in range(40)]
        line.bytes_per_s = 1.0
        swept = await forwarder.sweep()
        assert swept.cleared == 0
        assert waiting(site) == 40
        line.bytes_per_s = None
        await drained(site, forwarder)
    assert len(await rows(front)) == 41
    assert set(sent) <= set(await rows(front))


@pytest.mark.fault(17)
async def test_an_ack_lost_on_the_line_after_the_commit_costs_a_resend_and_no_second_row(
    front: Front, line: BadLine, tmp_path: Path
) -> None:
    async with site_over(front, line.url, tmp_path) as (site, forwarder, _):
        site.notify.to("ops").send("first", "b")
        await drained(site, forwarder)
        sent = [site.notify.to("ops").send("Pump", "b") for _ in range(5)]
        line.loses_answers = True
        swept = await forwarder.sweep()
        assert (swept.cleared, waiting(site)) == (0, 5)
        stored = await rows(front)
        assert set(sent) <= set(stored), "central has them; only the site cannot know"
        await drained(site, forwarder)
    assert await rows(front) == stored
    assert line.connections == 2


@pytest.mark.fault(18)
async def test_half_open_connection_is_abandoned_in_time_and_replaced(
    front: Front, line: BadLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a batch is under way its answer is missed; while nothing is, the pongs are. Both within half a minute."""
    quick = LinkSession()
    quick.sent(quick.submit([]), 100_000, 0.0)
    quick.answered(Ack(1, (), 500), 0.1)
    assert quick.patience_s(500_000) <= 30, "on a line that is known to be quick"
    async with site_over(front, line.url, tmp_path) as (site, forwarder, _):
        site.notify.to("ops").send("before", "b")
        await drained(site, forwarder)
        line.is_silent = True
        sent = site.notify.to("ops").send("into the void", "b")
        with monkeypatch.context() as hasty:
            hasty.setattr(session, "ANSWER_S", 0.3)
            hasty.setattr(session, "RATE_FLOOR", 1e6)
            swept = await forwarder.sweep()
        assert swept.cleared == 0
        line.is_silent = False
        await drained(site, forwarder)
    assert sent in await rows(front)
    assert line.connections == 2


@pytest.mark.fault(18)
@pytest.mark.dec("DEC-26")
async def test_both_ends_notice_a_half_open_control_connection_and_the_site_opens_another(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.PING_S + connection.SILENCE_S <= 30
    assert front_server.PING_S + front_server.PONG_S <= 30
    for module, name, value in (
        (connection, "PING_S", 0.1),
        (connection, "SILENCE_S", 0.4),
        (front_server, "PING_S", 0.2),
        (front_server, "PONG_S", 0.4),
    ):
        monkeypatch.setattr(module, name, value)

    async def handle(message: LinkMessage) -> LinkMessage | None:
        raise AssertionError(message)

    links = front.app.state.backend.commands.connections
    async with served(front.app) as url, bad_line(url) as line:
        endpoint = Endpoint(line.url, front.tokens["site"])
        client = ControlClient(lambda: endpoint, handle, SystemClock(), Random(1), interval_s=0.05)
        stopping = asyncio.Event()
        running = asyncio.create_task(client.run(stopping))
        await until(lambda: client.is_connected and links.of("plant-7") is not None)
        first = links.of("plant-7")
        line.is_silent = True
        await until(lambda: not client.is_connected and links.of("plant-7") is None)
        line.is_silent = False
        await until(lambda: client.is_connected and links.of("plant-7") not in (None, first), 60)
        stopping.set()
        async with asyncio.timeout(DEADLINE_S):
            await running


@pytest.mark.fault(16)
async def test_central_gone_for_a_day_costs_nothing_but_time(front: Front, tmp_path: Path) -> None:
    """24 h of injected time, a sweep every ten minutes, scripts that go on sending; on return all arrive."""
    clock = ManualClock()
    async with served(front.app) as url, bad_line(url) as line:
        line.cut()
        async with site_over(front, line.url, tmp_path, clock, interval_s=600) as (site, forwarder, _):
            sent = [site.notify.to("ops").send("Pump", "b" * 300) for _ in range(2000)]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            began = clock.now()
            with capture_logs() as logs:
                while clock.now() < began + timedelta(hours=24):
                    swept = await forwarder.sweep()
                    assert (swept.cleared, swept.boxed, swept.kept) == (0, 0, 0)
                    clock.advance(600)
                    if len(sent) < 2100:
                        sent.append(site.notify.to("ops").send("Pump", "b" * 300))
            assert len(logs) == 1, "told once, not every ten minutes"
            message = site._buffer.find(sent[0])
            assert (message.retry_count, message.last_error) == (0, None), "a link that is down is nobody's attempt"
            assert waiting(site) == len(sent) == 2100
            line.is_cut = False
            async with asyncio.timeout(DEADLINE_S):
                swept = await forwarder.sweep()
            assert (swept.cleared, swept.boxed, waiting(site)) == (2100, 0, 0)
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024, "kibibytes"
    assert sorted(await rows(front)) == sorted(sent)


async def test_both_ends_compress_on_slow_lines_only(
    front: Front, line: BadLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts as slow is set so low that any machine is quicker by itself."""
    monkeypatch.setattr(session, "COMPRESSED_BELOW", 200_000.0)
    async with site_over(front, line.url, tmp_path) as (site, forwarder, known):
        line.bytes_per_s = 50_000
        for _ in range(3):
            before = line.bytes_up
            for _ in range(20):
                site.notify.to("ops").send("Pump", "No flow since this morning. " * 40)
            await drained(site, forwarder)
            assert line.bytes_up - before < 8_000, "20 kB of text"
        line.bytes_per_s = None
        for _ in range(20):
            # How quick a line is shows by what it has to carry, and of this there is nothing to be saved.
            for _ in range(200):
                site.notify.to("ops").send("Pump", noise(1000))
            await drained(site, forwarder)
            if not known.is_compression_worth(100_000):
                break
        before = line.bytes_up
        for _ in range(200):
            site.notify.to("ops").send("Pump", "No flow since this morning. " * 40)
        await drained(site, forwarder)
        assert line.bytes_up - before > 200_000, "220 kB of text, as it is"


@pytest.mark.bad_input(16)
@pytest.mark.threat(2)
async def test_a_compressed_bomb_is_refused_by_its_rule_and_the_connection_stays(front: Front) -> None:
    async with served(front.app) as url, aiohttp.ClientSession(base_url=url) as http:
        line = Line(front, url, http)
        async with line.websocket() as websocket:
            bomb = zlib.compress(b'{"t":"submit","seq":1,"items":[' + b" " * (16 * FRAME_BYTES_MAX) + b"]}", 9)
            for content, code in (
                (bomb, "link.too_large"),
                (zlib.compress(b"{}")[:-2], "link.compressed"),
                (zlib.compress(b"\xff\xff"), "json.not_utf8"),
                (zlib.compress(zlib.compress(b"{}")), "json.not_utf8"),
            ):
                await websocket.send_bytes(content)
                refusal = await receive(websocket)
                assert isinstance(refusal, Refusal)
                assert refusal.code == code
            submit = encode(Submit(9, (front.centre.item(),)))
            await websocket.send_bytes(zlib.compress(submit))
            answer = await websocket.receive_bytes()
            assert answer[:1] == b"\x78", "answered as it was asked"
            ack = decode(decompress(answer))
            assert isinstance(ack, Ack)
            assert [result.verdict for result in ack.results] == ["accepted"]
        # By POST a body is what it is: no Content-Encoding is taken.
        reply = await line.post(zlib.compress(submit), **{"Content-Encoding": "deflate"})
        assert reply.status == 400
