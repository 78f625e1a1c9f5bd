"""The dispatcher as it runs: sweeps one after the other, attempts beside them, adapters for its whole life."""

import asyncio
import random

import pytest

from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.core.notification import Status
from support.centre import DEADLINE_S, Centre, Hanging, ScriptedAdapter, open_centre
from support.plans import MeasuredStore


@pytest.mark.req("DSP-03", "DSP-08", "DEC-06")
async def test_wake_ups_while_a_sweep_runs_start_no_second_one(store_url: str) -> None:
    """However often it is woken, no row is in two attempts at once, and the dispatcher goes on afterwards."""
    async with open_centre(store_url, SystemClock()) as centre:
        await centre.add_channel()
        await centre.add_list()
        hanging = Hanging()
        centre.adapter.always["ops"] = hanging
        dispatcher = centre.dispatcher(slots=4, slots_per_key=4)
        running = asyncio.create_task(dispatcher.run())
        sent = await centre.send_many(12)
        for _ in range(200):
            centre.store.wake.set()
            await asyncio.sleep(0)
        await centre.adapter.called(4)
        assert len(set(centre.adapter.sent())) == len(centre.adapter.sent()) == 4

        hanging.let_go()
        await centre.adapter.called(12)
        await dispatcher.idle()
        dispatcher.stop()
        await running

        assert sorted(centre.adapter.sent()) == sorted(sent)
        assert {(await centre.get(one)).status for one in sent} == {Status.DELIVERED}


@pytest.mark.req("DSP-10")
async def test_hanging_delivery_delays_neither_ingest_nor_other_deliveries(mailing: Centre) -> None:
    await mailing.add_list("slow")
    hanging = Hanging()
    mailing.adapter.always["slow"] = hanging
    stuck = await mailing.send("slow")
    dispatcher = mailing.dispatcher()
    async with asyncio.timeout(DEADLINE_S), dispatcher.running():
        await dispatcher.sweep()
        await mailing.adapter.called(1, "slow")

        quick = await mailing.send("ops")
        await dispatcher.sweep()
        await mailing.adapter.called(1, "ops")

        hanging.let_go()
        await dispatcher.idle()
    assert (await mailing.get(quick)).status is Status.DELIVERED
    assert (await mailing.get(stuck)).status is Status.DELIVERED


@pytest.mark.req("DSP-02", "DSP-11")
async def test_restarted_dispatcher_delivers_due_rows_without_a_wake_up(store_url: str) -> None:
    """Another node wrote the row, and no wake-up ever reached this one: the interval finds it."""
    adapter = ScriptedAdapter()
    async with open_centre(store_url, SystemClock()) as centre:
        await centre.add_channel()
        await centre.add_list()
        store = open_store(store_url)
        try:
            for number in (1, 2):
                options = DispatchOptions(interval_s=0.05)
                made = Dispatcher(store, {"email": adapter}, f"node-{number}", SystemClock(), random.Random(1), options)
                running = asyncio.create_task(made.run())
                await centre.send()
                await adapter.called(number)
                made.stop()
                await running
        finally:
            await store.close()


@pytest.mark.req("ING-09")
async def test_batch_that_cannot_be_stored_fails_no_other(mailing: Centre) -> None:
    """Each batch is a transaction of its own, also where the embedded store commits several together."""
    broken = mailing.item(subject="Pump 9 stopped")
    if mailing.is_postgresql:
        await mailing.execute(
            "create function refuse() returns trigger language plpgsql as $$ begin"
            " if new.subject = 'Pump 9 stopped' then raise exception 'not this one'; end if; return new; end $$",
            "create trigger refuse before insert on notifications for each row execute function refuse()",
        )
    else:
        await mailing.execute(
            "create trigger refuse before insert on notifications when new.subject = 'Pump 9 stopped'"
            " begin select raise(abort, 'not this one'); end"
        )
    good = [mailing.item() for _ in range(20)]
    batches = [mailing.submit(item) for item in [*good[:10], broken, *good[10:]]]

    answers = await asyncio.gather(*batches, return_exceptions=True)

    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(failed) == 1
    assert "not this one" in str(failed[0])
    for item in good:
        assert (await mailing.get(item.notification_id)).status is Status.PENDING


@pytest.mark.req("DEC-08")
async def test_a_sweep_writes_only_where_rows_are_due(mailing: Centre) -> None:
    """A claim that finds nothing would cost a commit, in every sweep and for every pool."""
    measured = MeasuredStore(mailing.store)
    node = Dispatcher(measured, mailing.adapters, "node", mailing.clock, random.Random(1))
    async with node.running():
        await node.sweep()
        assert (measured.calls["claim_order"], measured.calls["claim_share"], measured.calls["promote"]) == (0, 0, 0)
        await mailing.send()
        await node.sweep()
        await node.idle()
        assert (measured.calls["claim_order"], measured.calls["claim_share"], measured.calls["promote"]) == (0, 1, 0)


@pytest.mark.req("CHN-03")
async def test_turns_behind_a_rate_wake_the_node_without_a_sweep_by_interval(store_url: str) -> None:
    async with open_centre(store_url, SystemClock()) as centre:
        for name in ("one", "two", "three"):
            await centre.add_channel(name, default=False, rate="40/1s")
            await centre.add_list(name, channel_name=name)
            await centre.send_many(24, name)
        nodes = [centre.dispatcher(node, interval_s=600.0, refresh_s=600.0) for node in ("node-a", "node-b")]
        running = [asyncio.create_task(node.run()) for node in nodes]
        await centre.adapter.called(72)
        for node in nodes:
            node.stop()
        await asyncio.gather(*running)
        assert len(set(centre.adapter.sent())) == centre.adapter.count == 72
