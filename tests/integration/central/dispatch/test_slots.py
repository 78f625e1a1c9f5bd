"""Slots of lists and subscriptions: shares, more than a share, long attempts, hosts."""

import asyncio
from collections import Counter
from functools import partial

import asyncpg
import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.breaker import Breaker, BreakerState, record
from fieldpost.core.delivery.outcome import Delivered, Evidence, Outcome
from fieldpost.core.delivery.routing import SUBSCRIPTION_BREAKER
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre, Hanging, ScriptedAdapter, open_centre
from support.plans import fill
from support.receivers import subscribe


class OneByOne:
    """Attempts that wait until the test finishes them, oldest first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, asyncio.Event]] = []

    @property
    def running(self) -> Counter[str]:
        return Counter(name for name, _ in self.waiting)

    async def __call__(self, envelope: Envelope) -> Outcome:
        done = asyncio.Event()
        self.waiting.append((envelope.list_name, done))
        await done.wait()
        return Delivered()

    async def finish(self, name: str, count: int, dispatcher: Dispatcher, *, newest: bool = False) -> None:
        """So many of the list's attempts end, and their results are written."""
        mine = [one for one in self.waiting if one[0] == name]
        chosen = mine[-count:] if newest else mine[:count]
        left = len(dispatcher._running) - count
        for one in chosen:
            self.waiting.remove(one)
            one[1].set()
        while len(dispatcher._running) > left:
            await dispatcher._freed_or_stopping()


@pytest.mark.req("DEC-74", "DEC-08")
async def test_a_list_beyond_its_share_claims_nothing_while_another_has_due_rows(mailing: Centre) -> None:
    attempts = OneByOne()
    mailing.adapter.always = dict.fromkeys(("ops", "b"), attempts)
    await mailing.add_list("b")
    await mailing.store.write(fill, "ops", 100)
    dispatcher = mailing.dispatcher(slots=16, slots_per_key=4, grace_s=0.01)
    async with asyncio.timeout(30), dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(12)
        assert attempts.running == {"ops": 12}, "alone, and a quarter of the slots stays free"

        await mailing.store.write(fill, "b", 100)
        sweeping = asyncio.create_task(dispatcher.sweep())
        await mailing.adapter.called(4, "b")
        assert attempts.running == {"ops": 12, "b": 4}, "the other finds its share free at once"

        await attempts.finish("ops", 6, dispatcher)
        await sweeping
        await dispatcher.sweep()
        assert attempts.running == {"ops": 6, "b": 4}, "both have due rows; neither is below its share"

        await attempts.finish("ops", 3, dispatcher)
        await dispatcher.sweep()
        await mailing.adapter.called(13, "ops")
        assert attempts.running == {"ops": 4, "b": 4}, "back within its share, it gets one more"


@pytest.mark.req("DEC-74", "DEC-47", "DEC-09")
async def test_a_list_with_a_long_attempt_is_limited_to_its_share(mailing: Centre, clock: ManualClock) -> None:
    attempts = OneByOne()
    mailing.adapter.always["ops"] = attempts
    await mailing.store.write(fill, "ops", 100)
    dispatcher = mailing.dispatcher(slots=16, slots_per_key=4, long_s=5.0, grace_s=0.01)
    async with asyncio.timeout(30), dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(12)

        clock.advance(6)
        await dispatcher.sweep()
        assert attempts.running == {"ops": 12}, "a server that hangs gets no further slots"

        await attempts.finish("ops", 8, dispatcher, newest=True)
        await dispatcher.sweep()
        await mailing.adapter.called(16)
        assert attempts.running == {"ops": 8}, "four long attempts freed their slots; its share is four more"

        clock.advance(6)
        await dispatcher.sweep()
        assert attempts.running == {"ops": 8}, "it may have no more long attempts than its share"

        await attempts.finish("ops", 8, dispatcher)
        await dispatcher.sweep()
        await mailing.adapter.called(28)
        assert attempts.running == {"ops": 12}, "nothing is long any more"


@pytest.mark.req("DEC-47")
async def test_a_monitored_subscription_has_one_slot(centre: Centre, clock: ManualClock) -> None:
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    attempts = OneByOne()
    adapter.always = dict.fromkeys(("well", "failing"), attempts)
    urls = {name: f"https://{name}.example/" for name in ("well", "failing")}
    keys = await subscribe(centre, urls, rows=50)
    fails = partial(record, evidence=Evidence.FAILS, error="503", policy=SUBSCRIPTION_BREAKER, now=clock.now())
    await centre.store.write(breakers.change, keys["failing"], fails)
    dispatcher = centre.dispatcher(grace_s=0.01)
    async with asyncio.timeout(30), dispatcher.running():
        await dispatcher.sweep()
        await adapter.called(1, "failing")
        await adapter.called(32, "well")
        await dispatcher.sweep()
        assert attempts.running == {"failing": 1, "well": 32}

        await attempts.finish("failing", 1, dispatcher)
        clock.advance(1)
        await dispatcher.sweep()
        await adapter.called(1 + 32, "failing")
        assert attempts.running["failing"] == 32, "a success makes it healthy: alone, it gets what its host may have"


@pytest.mark.req("DEC-47")
async def test_one_host_gets_a_limited_number_of_deliveries_over_all_subscriptions(centre: Centre) -> None:
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    attempts = OneByOne()
    crowd = {f"crowd-{number}": "https://crowded.example/" for number in range(10)}
    adapter.always = dict.fromkeys(("other", *crowd), attempts)
    await subscribe(centre, {**crowd, "other": "https://other.example/"}, rows=20)
    dispatcher = centre.dispatcher(grace_s=0.01, webhooks=WebhookOptions(host_max=32))
    async with asyncio.timeout(30), dispatcher.running():
        await dispatcher.sweep()
        await adapter.called(8, "other")
        assert attempts.running.total() - attempts.running["other"] == 32
        waiting = next(name for name in attempts.running if name != "other")
        await attempts.finish(waiting, 1, dispatcher)
        await dispatcher.sweep()
        await adapter.called(32 + attempts.running["other"] + 1)
        assert attempts.running.total() - attempts.running["other"] == 32, "a place that comes free is taken"
        assert await released(centre) == 0


@pytest.mark.req("DEC-47")
async def test_the_backlog_of_one_subscription_is_claimed_as_its_host_has_room(centre: Centre) -> None:
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    attempts = OneByOne()
    adapter.always["alone"] = attempts
    await subscribe(centre, {"alone": "https://alone.example/"}, rows=100)
    # Without a wake-up nothing would be claimed for as long as the test may take.
    dispatcher = centre.dispatcher(webhooks=WebhookOptions(host_max=4), interval_s=3600, refresh_s=3600, grace_s=0.01)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(dispatcher.run())
        for done in range(0, 100, 4):
            await adapter.called(done + 4)
            assert attempts.running == {"alone": 4}
            await attempts.finish("alone", 4, dispatcher)
        dispatcher.stop()
    assert await centre.rows("select distinct status from notifications") == [("delivered",)]
    assert await released(centre) == 0, "none is claimed that must wait"


@pytest.mark.req("DEC-47")
async def test_many_subscriptions_of_one_host_take_turns(centre: Centre) -> None:
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    attempts = OneByOne()
    crowd = {f"crowd-{number:02}": "https://crowded.example/" for number in range(20)}
    adapter.always = dict.fromkeys(crowd, attempts)
    await subscribe(centre, crowd, rows=3)
    dispatcher = centre.dispatcher(webhooks=WebhookOptions(host_max=5), interval_s=3600, refresh_s=3600, grace_s=0.01)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(dispatcher.run())
        for done in range(60):
            await adapter.called(min(done + 5, 60))
            assert attempts.running.total() <= 5
            await attempts.finish(attempts.waiting[0][0], 1, dispatcher)
        dispatcher.stop()
    served = [envelope.list_name for envelope in adapter.envelopes]
    for turn in range(0, 60, 20):
        assert set(served[turn : turn + 20]) == crowd.keys(), "nobody gets a second one before all had their first"
    assert await released(centre) == 0


@pytest.mark.req("DEC-47")
async def test_a_turn_passes_on_at_once_when_nothing_is_due_any_more(centre: Centre) -> None:
    """What was due at the last refresh may be gone: those that have something do not wait for the next refresh."""
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    attempts = OneByOne()
    crowd = {f"crowd-{number:02}": "https://crowded.example/" for number in range(20)}
    adapter.always = dict.fromkeys(crowd, attempts)
    keys = await subscribe(centre, crowd)
    dispatcher = centre.dispatcher(webhooks=WebhookOptions(host_max=2), grace_s=0.01)
    async with asyncio.timeout(30), dispatcher.running():
        await dispatcher.sweep()
        await adapter.called(2)
        started = {name for name, _ in attempts.waiting}
        last = max(crowd.keys() - started)
        gone = ", ".join(f"'{keys[name]}'" for name in crowd.keys() - started - {last})
        await centre.execute(
            f"delete from notifications where delivery_key in ({gone})",
        )
        await attempts.finish(attempts.waiting[0][0], 1, dispatcher)
        await dispatcher.sweep()
        await adapter.called(1, last)


@pytest.mark.req("DEC-47")
@pytest.mark.threat(17)
async def test_probes_count_toward_the_limit_of_their_host_and_are_not_starved_by_deliveries(
    centre: Centre, clock: ManualClock
) -> None:
    adapter = centre.adapters["webhook"] = ScriptedAdapter("webhook")
    attempts = OneByOne()
    blocked = [f"blocked-{number}" for number in range(6)]
    adapter.always = dict.fromkeys(("busy", *blocked), attempts)
    keys = await subscribe(centre, dict.fromkeys(blocked, "https://shared.example/"))
    await subscribe(centre, {"busy": "https://shared.example/"}, rows=40)
    opened = {key: Breaker(key, BreakerState.OPEN, 10, open_until=clock.now()) for key in keys.values()}
    await centre.store.write(breakers.change_many, {key: partial(becoming, one) for key, one in opened.items()})
    dispatcher = centre.dispatcher(grace_s=0.01, webhooks=WebhookOptions(host_max=4))
    async with asyncio.timeout(30), dispatcher.running():
        await dispatcher.sweep()
        await adapter.called(4, "busy")
        for _ in range(12):
            assert attempts.running.total() <= 4
            clock.advance(1)
            await dispatcher.sweep()
            await attempts.finish(attempts.waiting[0][0], 1, dispatcher)
            await dispatcher.sweep()  # deliveries could take the free place before a probe does
        assert all(adapter.sent(name) for name in blocked), "each was probed although the other has a backlog"
        assert await released(centre) <= 6, "a probe is claimed in vain at most once"


def becoming(wanted: Breaker, _: Breaker) -> Breaker:
    return wanted


async def released(centre: Centre) -> int:
    """How many claims were given back."""
    [(count,)] = await centre.rows("select count(*) from attempts where outcome = 'released'")
    assert isinstance(count, int)
    return count


async def test_delivery_frees_its_slot_before_its_result_is_written(pg_url: str, clock: ManualClock) -> None:
    """Another transaction holds the row of the first one, so no result can be written."""
    async with open_centre(pg_url, clock) as mailing:
        await mailing.add_channel()
        await mailing.add_list()
        mailing.adapter.always["ops"] = first = Hanging()
        sent = await mailing.send_many(4)
        dispatcher = mailing.dispatcher(slots=4, slots_per_key=4)
        other = await asyncpg.connect(pg_url)
        async with asyncio.timeout(30), dispatcher.running():
            await dispatcher.sweep()
            await mailing.adapter.called(4)
            async with other.transaction():
                await other.execute("select 1 from notifications where notification_id = $1 for update", sent[0])
                first.let_go()
                while len(first.sent) < 4:
                    await asyncio.sleep(0)
                sent += await mailing.send_many(4)
                sweeping = asyncio.create_task(dispatcher.sweep())
                await mailing.adapter.called(8)
            await sweeping
            await dispatcher.idle()
        await other.close()
        assert {(await mailing.get(one)).status for one in sent} == {Status.DELIVERED}
