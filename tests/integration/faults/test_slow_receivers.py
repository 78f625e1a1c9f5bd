"""Receivers, name servers and mail servers that hang: nobody else waits for them."""

import asyncio
import socket
import sys
import threading
from collections.abc import Sequence

import pytest
from aiohttp import web

from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.core.delivery.holds import HoldKind, held_by
from fieldpost.core.notification import Status
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.resolver import SystemResolver
from fieldpost.testing import ManualClock
from support.centre import Hanging, ScriptedAdapter, open_centre
from support.plans import fill
from support.receivers import PostingAdapter, subscribe

pytestmark = pytest.mark.timeout(600)  # on a busy machine

PUBLIC = "127.0.0.2"
"""Stands for a public address, at which all receivers live."""
NAMES = 1000
SILENT = 20
MAILS = 200


@pytest.mark.fault(72)
@pytest.mark.req("DEC-35")
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
async def test_silent_name_server_holds_only_rows_of_its_own_hosts(store_url: str) -> None:
    """Receivers that answer and mail are all delivered while 20 of 1,000 names hang; then the 20 are held."""
    gave_up = threading.Event()

    def look_up(name: str) -> Sequence[str]:
        if name.startswith("silent"):
            gave_up.wait(600)
            raise socket.gaierror(socket.EAI_AGAIN, "the name server did not answer")
        return [PUBLIC]

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=204)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, PUBLIC, 0, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    outbound = Outbound(OutboundOptions(PUBLIC), resolve=SystemResolver(600, look_up=look_up))
    async with open_centre(store_url, ManualClock()) as centre:
        adapter = PostingAdapter(outbound)
        centre.adapters["webhook"] = adapter
        await centre.add_channel()
        await centre.add_list()
        names = [f"{'silent' if number % (NAMES // SILENT) == 0 else 'name'}{number}" for number in range(NAMES)]
        keys = await subscribe(centre, {name: f"http://{name}.example:{port}/hook" for name in names})
        await centre.store.write(fill, "ops", MAILS)
        node = centre.dispatcher()
        async with asyncio.timeout(300), node.running():
            while len(adapter.answered) < NAMES - SILENT or centre.adapter.count < MAILS:
                await node.sweep()
                await asyncio.sleep(0.01)
            assert not [name for name in adapter.answered if name.startswith("silent")]
            gave_up.set()
            await node.idle()
        silent = {key for name, key in keys.items() if name.startswith("silent")}
        rows = await centre.rows("select delivery_key, status, retry_count, held_by from notifications")
        assert len(rows) == NAMES + MAILS
        for key, status, retry_count, hold in rows:
            expected = (
                (Status.PENDING, held_by(HoldKind.OUR_SIDE, str(key))) if key in silent else (Status.DELIVERED, None)
            )
            assert (status, hold, retry_count) == (*expected, 0), f"no attempt is used up: {key}"
        assert await centre.rows("select key from breakers where failures > 0") == []
    await outbound.close()
    await runner.cleanup()


@pytest.mark.req("DEC-47")
async def test_with_eight_hanging_subscriptions_mail_to_lists_keeps_flowing(store_url: str) -> None:
    """Eight receivers with a share of eight slots each would take all 64 slots of the lists."""
    async with open_centre(store_url, ManualClock()) as centre:
        webhooks = centre.adapters["webhook"] = ScriptedAdapter("webhook")
        names = [f"hook-{number}" for number in range(8)]
        webhooks.always = dict.fromkeys(names, Hanging())
        await subscribe(centre, {name: f"https://{name}.example/" for name in names}, rows=100)
        await centre.add_channel()
        await centre.add_list()
        node = centre.dispatcher(grace_s=0.01)
        async with asyncio.timeout(300), node.running():
            await node.sweep()
            await webhooks.called(8 * DispatchOptions().slots_per_key)
            await centre.store.write(fill, "ops", MAILS)
            while centre.adapter.count < MAILS:
                await node.sweep()
                await asyncio.sleep(0)
            assert webhooks.running == webhooks.count, "all of them hang as before"
    assert centre.adapter.count == MAILS


@pytest.mark.req("DEC-74", "DEC-09")
@pytest.mark.parametrize("since_s", [0, 60], ids=["just begun", "long since"])
async def test_a_second_list_is_delivered_at_once_beside_a_list_of_ten_thousand_whose_server_hangs(
    store_url: str, since_s: int
) -> None:
    """No time passes between the arrival of the second list's notification and its delivery."""
    clock = ManualClock()
    async with open_centre(store_url, clock) as centre:
        await centre.add_channel()
        await centre.add_channel("other", default=False)
        await centre.add_list("big")
        await centre.add_list("small", channel_name="other")
        await centre.store.write(fill, "big", 10_000)
        centre.adapter.always["big"] = Hanging()
        node = centre.dispatcher(grace_s=0.01, renew_s=10.0)
        running = asyncio.create_task(node.run())
        await centre.adapter.called(48)
        if since_s:
            clock.advance(since_s)
            centre.store.wake.set()
        before = clock.now()
        sent = await centre.send("small")
        await centre.adapter.called(1, "small")
        assert clock.now() == before
        assert len(centre.adapter.sent("big")) == 48, (
            "three quarters of the slots and, with its server hanging, no more"
        )
        node.stop()
        await running
        assert (await centre.get(sent)).status is Status.DELIVERED
