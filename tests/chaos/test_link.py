"""The link in earnest: a day without central and 200,000 rows, a line of 8 kbit/s, a node that freezes."""

import asyncio
import os
import resource
from base64 import b64encode
from datetime import timedelta
from pathlib import Path
from random import Random

import msgspec
import pytest
from sqlalchemy import Connection, text

from fieldpost import Site
from fieldpost.clock import SystemClock
from fieldpost.core.ids import new_ids
from fieldpost.core.sites.message import Category
from fieldpost.core.times import to_microseconds
from fieldpost.link.client import LinkClient
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.messages import Item
from fieldpost.link.session import LinkSession
from fieldpost.site.carriers.central import CentralCarrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.forwarder import Forwarder
from fieldpost.testing import ManualClock
from support.bad_connection import bad_line
from support.cluster import Cluster
from support.front import Front, open_front, served
from support.journey import RunningAgent
from support.running_central import until

ROWS = 200_000
AT_ONCE = 10_000
MEBIBYTE = 1024 * 1024
_FILL = """
INSERT INTO messages (message_id, category, target, payload, created_at)
VALUES (?, 'notification', 'central', ?, ?)
"""


async def count_of(front: Front) -> int:
    def count(conn: Connection) -> int:
        return int(conn.execute(text("select count(*) from notifications")).scalar_one())

    return await front.centre.store.read(count)


def fill(site: Site, clock: ManualClock) -> None:
    now = to_microseconds(clock.now())
    for _ in range(0, ROWS, AT_ONCE):
        ids = new_ids(clock.now(), os.urandom(10 * AT_ONCE))
        rows = [(i, msgspec.json.encode(Item(i, "ops", "Pump stopped", "b" * 300)).decode(), now) for i in ids]
        site._buffer.write(lambda cursor, rows=rows: cursor.executemany(_FILL, rows))


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def left(site: Site) -> int:
    return site._buffer.depth().waiting.get(Category.NOTIFICATION, 0)


@pytest.mark.timeout(1800)
@pytest.mark.fault(16)
async def test_two_hundred_thousand_rows_arrive_after_a_day_without_central_in_constant_memory(
    store_url: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    async with open_front(store_url, clock) as front, served(front.app) as url, bad_line(url) as line:
        token = front.tokens["site"]
        line.cut()
        with Site.create(tmp_path / "site", "plant-7", line.url, token) as site:
            fill(site, clock)
            session = LinkSession()
            client = LinkClient(lambda: Endpoint(line.url, token), session, clock)
            options = ForwardOptions(interval_s=60)
            forwarder = Forwarder(site._buffer, CentralCarrier(client, session), options, clock, Random(1))
            began = clock.now()
            while clock.now() < began + timedelta(hours=24):
                swept = await forwarder.sweep()
                assert (swept.cleared, swept.boxed, swept.kept) == (0, 0, 0)
                clock.advance(60)
            assert left(site) == ROWS
            line.is_cut = False
            sweeping = asyncio.create_task(forwarder.sweep())
            early = peak = 0
            while not sweeping.done():
                await asyncio.wait([sweeping], timeout=0.5)
                peak = max(peak, rss())
                if not early and left(site) < ROWS * 0.8:
                    early = peak
            swept = await sweeping
            assert (swept.cleared, swept.boxed, swept.error) == (ROWS, 0, None)
            assert peak - early < 64 * MEBIBYTE, "of both ends together"
            await forwarder.close()
        assert await count_of(front) == ROWS


@pytest.mark.timeout(600)
@pytest.mark.fault(19)
async def test_every_row_arrives_once_over_one_connection_of_eight_kilobits_a_second(
    sqlite_url: str, tmp_path: Path
) -> None:
    clock = SystemClock()
    async with open_front(sqlite_url, ManualClock()) as front, served(front.app) as url, bad_line(url) as line:
        token = front.tokens["site"]
        with Site.create(tmp_path / "site", "plant-7", line.url, token) as site:
            session = LinkSession()
            client = LinkClient(lambda: Endpoint(line.url, token), session, clock)
            options = ForwardOptions(interval_s=1)
            forwarder = Forwarder(site._buffer, CentralCarrier(client, session), options, clock, Random(1))
            line.bytes_per_s = 1000
            for _ in range(60):
                site.notify.to("ops").send("Pump", b64encode(os.urandom(450)).decode())
            async with asyncio.timeout(400):
                while left(site):
                    await forwarder.sweep()
            await forwarder.close()
        assert await count_of(front) == 60
        assert line.connections == 1
        assert session.room().bytes <= 8 * 1024


@pytest.mark.timeout(300)
@pytest.mark.fault(18)
async def test_site_leaves_a_frozen_node_for_another_within_about_half_a_minute(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The kernel of the frozen node still takes every byte; only answers and pongs fail to come."""
    first, second = await cluster.start(), await cluster.start()
    await cluster.furnish("ops")
    folder = tmp_path / "site"
    Site.create(folder, "plant-7", first.url, cluster.token).close()
    settings = folder / "site.toml"
    settings.write_text(settings.read_text().replace("[central]\n", f'[central]\nurls = ["{second.url}"]\n'))
    with settings.open("a") as file:
        file.write("\n[forward]\ninterval_s = 1\n")

    async def arrived(notification_id: str) -> bool:
        return bool(await cluster.query("select 1 from notifications where notification_id = $1", notification_id))

    agent = RunningAgent(folder)
    await agent.start()
    try:
        with Site.open(folder) as site:
            before = site.notify.to("ops").send("before", "b")
            await until(lambda: arrived(before), 30, "the first notification")
            first.pause()
            after = site.notify.to("ops").send("after", "b")
            await until(lambda: arrived(after), 60, "the notification by the other node")
    finally:
        first.resume()
        await agent.stop()
