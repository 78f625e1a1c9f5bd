"""Real receivers that misbehave, with the real adapter and dispatcher: nothing is lost, no receiver hurts another."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.clock import SystemClock
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.notification import Status
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import ManualClock, WebhookReceiver
from support.centre import open_centre
from support.front import ADMIN
from support.hooks import Hooks

OPTIONS = WebhookOptions(allow_plain=True)
GOOD = [f"good-{n}" for n in range(8)]
DEADLINE_S = 3.0
"""Of an attempt. Receivers that work must answer within it on a busy machine too."""


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with WebhookReceiver() as receiver:
        yield receiver


@pytest.mark.fault(48, 54)
@pytest.mark.dec("DEC-46", "DEC-47")
@pytest.mark.timeout(600)
async def test_every_receiver_that_works_gets_everything_while_others_fail(
    store_url: str, receiver: WebhookReceiver
) -> None:
    """Real time: hanging receivers are held at the deadline, the others do not wait for them."""
    clock = ManualClock(SystemClock().now())
    outbound = Outbound(OutboundOptions(allow="127.0.0.1"))
    async with open_centre(store_url, clock) as centre:
        hooks = Hooks(centre, clock)
        centre.adapters["webhook"] = WebhookAdapter(outbound=outbound, deadline_s=DEADLINE_S)
        hooks.actions = SubscriptionActions(
            centre.store, {"webhook": WebhookAdapter(outbound=outbound)}, clock, centre.keyring, OPTIONS
        )
        for name in (*GOOD, "hangs", "fails"):
            made = await hooks.actions.add(
                ADMIN, name, "shop", (FilterEntry(),), {"url": receiver.url(name), "quick_tries": 0}
            )
            assert made.secret is not None
            receiver.add(name, made.secret.reveal())
        receiver.on("hangs").hang()
        receiver.on("fails").answer(500)
        published = await hooks.publish(5)
        dispatcher = centre.dispatcher()
        async with dispatcher.running(), asyncio.timeout(300):
            for _ in range(6):  # one host has 32 deliveries at once
                await dispatcher.sweep()
                await dispatcher.idle()
                clock.advance(1)
            for name in GOOD:
                await receiver.accepted(5, name)
        assert receiver.forged == []
        for name in GOOD:
            assert len(set(receiver.ids(name))) == 5
            assert receiver.second_copies(name) == []
        rows = await centre.rows(
            "select list_name, status, count(*) from notifications group by list_name, status order by list_name"
        )
        assert rows == [
            ("fails", "retrying", 5),
            *((name, "delivered", 5) for name in GOOD),
            ("hangs", "retrying", 5),
        ]
        receiver.behave("hangs", "fails")
        clock.advance(3600)
        async with asyncio.timeout(300):
            for _ in range(6):
                made_again = centre.dispatcher()
                async with made_again.running():
                    await made_again.sweep()
                    await made_again.idle()
                clock.advance(3600)
        assert {len(set(receiver.ids(name))) for name in ("hangs", "fails")} == {len(published)}
        statuses = await centre.rows("select distinct status from notifications")
        assert statuses == [(Status.DELIVERED.value,)]
        exchanges = await centre.rows("select count(*) from attempts where exchanges is null and outcome = 'delivered'")
        assert exchanges == [(0,)], "a delivery keeps its exchange"
    await outbound.close()
