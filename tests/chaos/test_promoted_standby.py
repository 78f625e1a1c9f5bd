"""A synchronous standby hangs for 90 s while a site sends, the primary dies, the standby is promoted; ten times."""

import asyncio
from pathlib import Path

import pytest

from fieldpost.testing import MailServer
from support.cluster import Cluster
from support.need import cannot_have
from support.postgres import PostgresUnavailable
from support.sender import Sender
from support.standby import Replicated, query

pytestmark = pytest.mark.timeout(1800)
FROZEN_S = 90.0
AFTER_S = 60.0
"""How much longer every second round is, so that central gives up its first commit and takes a second submit."""


async def offer_until(sender: Sender, stop: asyncio.Event) -> None:
    """Offer the same notifications again and again, as a site does that gets no ack."""
    items = sender.items(8, "ops")
    while not stop.is_set():
        await sender.offer(items)
        await asyncio.sleep(0.5)


@pytest.mark.fault(31)
@pytest.mark.parametrize("number", range(10))
async def test_acked_notifications_survive_a_standby_frozen_for_long(
    tmp_path: Path, mail: MailServer, number: int
) -> None:
    try:
        servers = await Replicated().__aenter__()
    except PostgresUnavailable as error:
        cannot_have("postgres", str(error))
    try:
        async with Cluster(servers.primary.url(), tmp_path, mail) as cluster:
            await cluster.start()
            await cluster.furnish("ops")
            async with cluster.sender() as sender:
                await sender.send(20, "ops")
                servers.freeze()
                stop = asyncio.Event()
                sending = asyncio.create_task(offer_until(sender, stop))
                await asyncio.sleep(FROZEN_S + AFTER_S * (number % 2))
                stop.set()
                await sending
                url = await servers.fail_over()
                rows = await query(url, "select notification_id::text as id from notifications")
                assert len(sender.acked) >= 20
                assert sender.acked <= {row["id"] for row in rows}
    finally:
        servers.remove()
