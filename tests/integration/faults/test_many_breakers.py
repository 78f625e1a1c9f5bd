"""Two nodes tend the breakers of a thousand subscriptions at the same time; `make chaos` has ten thousand."""

import asyncio
from collections.abc import Callable

import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.testing import ManualClock
from support.centre import Hanging, ScriptedAdapter, open_centre
from support.many_breakers import check, hold_probe_and_release
from support.receivers import subscribe

COUNT = 1000


@pytest.mark.req("DEC-22", "DEC-44")
async def test_two_nodes_hold_probe_and_release_a_thousand_breakers_without_a_deadlock(pg_url: str) -> None:
    check(await hold_probe_and_release(pg_url, COUNT), COUNT)


@pytest.mark.req("DEC-47")
async def test_probes_that_hang_leave_slots_to_the_subscriptions_that_work(store_url: str) -> None:
    clock = ManualClock()
    async with open_centre(store_url, clock) as centre:
        adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
        hanging = {f"hung-{number:02}": f"https://hung-{number}.example/" for number in range(20)}
        keys = await subscribe(centre, hanging)
        adapter.always = dict.fromkeys(hanging, Hanging())
        node = centre.dispatcher(grace_s=0.01, webhooks=WebhookOptions(slots=8))
        opened = {key: Breaker(key, BreakerState.OPEN, 10, open_until=clock.now()) for key in keys.values()}
        await centre.store.write(breakers.change_many, {key: _becoming(breaker) for key, breaker in opened.items()})
        async with asyncio.timeout(30), node.running():
            for _ in range(4):
                clock.advance(1)
                await node.sweep()
            await adapter.called(4)
            await subscribe(centre, {"good": "https://good.example/"})
            await node.sweep()
            await adapter.called(1, "good")
            assert adapter.running < 8


def _becoming(wanted: Breaker) -> Callable[[Breaker], Breaker]:
    return lambda _: wanted
