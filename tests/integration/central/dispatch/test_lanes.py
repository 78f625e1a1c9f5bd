"""Who goes first: lanes, keys and slots, so that nothing slow or failing delays the others."""

import asyncio
from collections import Counter

import pytest

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, TransientFailure
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre, Hanging


async def make_retrying(centre: Centre, count: int, list_name: str = "ops") -> list[str]:
    """So many notifications that have failed once and are due again."""
    sent = await centre.send_many(count, list_name)
    quoted = ", ".join(f"'{i}'" for i in sent)
    await centre.execute(
        "update notifications set status = 'retrying', retry_count = 1, last_error = '451', next_attempt_at = due_at"
        f" where notification_id in ({quoted})"
    )
    return sent


async def in_flight(centre: Centre, count: int, **options: int) -> Counter[str]:
    """What a fresh node has in flight after its first sweep: so many of each list and status."""
    hanging = Hanging()
    centre.adapter.always = dict.fromkeys(("ops", "a", "b", "c", "slow"), hanging)
    dispatcher = centre.dispatcher(grace_s=0.01, **options)
    async with dispatcher.running():
        sweeping = asyncio.create_task(dispatcher.sweep())
        await centre.adapter.called(count)
        found = [await centre.get(e.notification_id) for e in centre.adapter.envelopes]
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
    assert centre.adapter.running_max == count
    return Counter(f"{n.list_name} {n.status.value}" for n in found)


@pytest.mark.req("DEC-09")
async def test_due_retries_leave_three_quarters_of_the_slots_to_first_attempts(
    mailing: Centre, clock: ManualClock
) -> None:
    await mailing.add_list("a")
    await make_retrying(mailing, 50, "a")
    clock.advance(1)
    await mailing.send_many(50, "ops")
    assert await in_flight(mailing, 8, slots=8, slots_per_key=8) == {"a retrying": 2, "ops pending": 6}


@pytest.mark.req("DEC-09")
async def test_the_retries_of_a_list_do_not_delay_its_own_first_attempts(mailing: Centre, clock: ManualClock) -> None:
    """A single list with both may use three quarters of the slots, and its retries a quarter of that."""
    await make_retrying(mailing, 50)
    clock.advance(1)
    await mailing.send_many(50)
    assert await in_flight(mailing, 48, slots=64, slots_per_key=8) == {"ops retrying": 12, "ops pending": 36}


@pytest.mark.req("DEC-09")
async def test_first_attempts_leave_the_retries_their_quarter(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("a")
    await mailing.send_many(50, "ops")
    clock.advance(1)
    await make_retrying(mailing, 50, "a")
    found = await in_flight(mailing, 8, slots=8, slots_per_key=8)
    assert found == {"a retrying": 2, "ops pending": 6}


@pytest.mark.req("DEC-09")
@pytest.mark.parametrize("lane", ["retrying", "pending"])
async def test_unused_slots_of_one_lane_go_to_the_other(mailing: Centre, lane: str) -> None:
    if lane == "retrying":
        await make_retrying(mailing, 20)
    else:
        await mailing.send_many(20)
    assert await in_flight(mailing, 8, slots=8, slots_per_key=8) == {f"ops {lane}": 8}


@pytest.mark.req("DEC-09")
async def test_free_slot_goes_to_the_lane_below_its_share(mailing: Centre, clock: ManualClock) -> None:
    """All slots are taken by retries when first attempts arrive; the next free ones are theirs."""
    first = Hanging()
    mailing.adapter.always["ops"] = first
    await make_retrying(mailing, 30)
    dispatcher = mailing.dispatcher(slots=4, slots_per_key=4, grace_s=0.01)
    async with dispatcher.running():
        sweeping = asyncio.create_task(dispatcher.sweep())
        await mailing.adapter.called(4)
        fresh = await mailing.send_many(3)
        second = Hanging()
        mailing.adapter.always["ops"] = second
        first.let_go()
        await mailing.adapter.called(8)
        assert set(fresh) <= set(mailing.adapter.sent()[4:8])
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


@pytest.mark.req("DEC-08", "DEC-09")
async def test_slow_key_delays_no_other(mailing: Centre) -> None:
    await mailing.add_list("slow")
    hanging = Hanging()
    mailing.adapter.always["slow"] = hanging
    slow = await mailing.send_many(40, "slow")
    quick = await mailing.send_many(40, "ops")
    dispatcher = mailing.dispatcher(slots=6, slots_per_key=4, grace_s=0.01)
    async with dispatcher.running():
        async with asyncio.timeout(20):
            while len(mailing.adapter.sent("ops")) < 40:
                await dispatcher.sweep()
                await mailing.adapter.called(min(40, len(mailing.adapter.sent("ops")) + 1), "ops")
        names = [envelope.list_name for envelope in mailing.adapter.envelopes]
        before = names[: len(names) - names[::-1].index("ops")]
        assert before.count("slow") == 4, "its share, for as long as another list has due rows"
        async with asyncio.timeout(20):
            while len(mailing.adapter.sent("slow")) < 5:
                await dispatcher.sweep()
                await asyncio.sleep(0)
        await dispatcher.sweep()
        assert len(mailing.adapter.sent("slow")) == 5, "and one more once nothing else is due: a slot stays free"
        hanging.let_go()
        await mailing.drain(dispatcher)
    assert {(await mailing.get(i)).status for i in quick + slow} == {Status.DELIVERED}


@pytest.mark.req("DEC-08")
async def test_the_bounds_of_node_and_key_hold(mailing: Centre) -> None:
    for name in ("a", "b", "c"):
        await mailing.add_list(name)
        await mailing.send_many(20, name)
    assert await in_flight(mailing, 7, slots=7, slots_per_key=3) == {"a pending": 3, "b pending": 3, "c pending": 1}


@pytest.mark.req("DEC-09")
async def test_failing_list_is_retried_without_delaying_healthy_ones(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("bad")
    mailing.adapter.always["bad"] = TransientFailure("451")
    bad = await mailing.send_many(30, "bad")
    await mailing.deliver()
    clock.advance(60)
    good = await mailing.send_many(30)
    dispatcher = mailing.dispatcher(slots=8, slots_per_key=8)
    async with dispatcher.running():
        before = mailing.adapter.count
        await mailing.deliver(dispatcher)
    order = [e.list_name for e in mailing.adapter.envelopes[before:]]
    assert order.count("ops") == order.count("bad") == 30
    last_good = len(order) - 1 - order[::-1].index("ops")
    assert order[:last_good].count("bad") <= 12, "about a quarter goes to the retries, no more"
    assert {(await mailing.get(i)).status for i in good} == {Status.DELIVERED}
    assert {(await mailing.get(i)).status for i in bad} == {Status.RETRYING}


@pytest.mark.req("DEC-08", "DSP-05")
async def test_sweep_continues_in_batches_until_no_row_is_due(mailing: Centre, clock: ManualClock) -> None:
    sent = []
    for _ in range(25):
        sent.append(await mailing.send())
        clock.advance(0.001)
    await mailing.deliver(batch_size=4, slots=4, slots_per_key=4)
    delivered = mailing.adapter.sent()
    assert sorted(delivered) == sorted(sent)
    for start in range(0, 25, 4):
        assert set(delivered[start : start + 4]) == set(sent[start : start + 4]), "the longest waiting go first"


@pytest.mark.req("DEC-09")
async def test_no_key_starves_when_there_are_more_keys_than_slots(mailing: Centre) -> None:
    names = [f"list-{n:02}" for n in range(20)]
    for name in names:
        await mailing.add_list(name)
        await mailing.send_many(20, name)
    dispatcher = mailing.dispatcher(slots=4, slots_per_key=2)
    async with dispatcher.running():
        sweeping = asyncio.create_task(dispatcher.sweep())
        await mailing.adapter.called(120)
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
    assert {e.list_name for e in mailing.adapter.envelopes[:120]} == set(names)


@pytest.mark.req("DEC-09")
async def test_a_retry_that_becomes_due_does_not_wait_for_the_end_of_a_backlog(
    mailing: Centre, clock: ManualClock
) -> None:
    async def take_a_second(_: Envelope) -> Outcome:
        clock.advance(1)
        return Delivered()

    await mailing.add_list("flaky")
    mailing.adapter.answer("flaky", TransientFailure("451"))
    await mailing.send("flaky")
    await mailing.deliver()
    mailing.adapter.always["ops"] = take_a_second
    await mailing.send_many(200)
    await mailing.deliver(slots=4, slots_per_key=4, batch_size=4)
    order = [e.list_name for e in mailing.adapter.envelopes]
    assert order.count("ops") == 200
    assert 60 <= order.index("flaky", 1) <= 80, "soon after its minute, in the middle of the backlog"


@pytest.mark.req("DEC-09")
async def test_lists_are_served_in_turn_with_any_order_of_ids(mailing: Centre, clock: ManualClock) -> None:
    """Of the rows of one claim, that of the last list is the newest; the walk still goes on behind its own end."""
    names = ("a", "b", "c", "d")
    for name in names:
        await mailing.add_list(name)
    for name in names:
        clock.advance(1)
        await mailing.send_many(20, name)
    dispatcher = mailing.dispatcher(slots=3, slots_per_key=1, grace_s=0.01)
    async with asyncio.timeout(30), dispatcher.running():
        for count in range(3, 27, 3):
            hanging = Hanging()
            mailing.adapter.always = dict.fromkeys(names, hanging)
            sweeping = asyncio.create_task(dispatcher.sweep())
            await mailing.adapter.called(count)
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
            hanging.let_go()
            await dispatcher.idle()
    served = Counter(envelope.list_name for envelope in mailing.adapter.envelopes[:24])
    assert max(served.values()) - min(served[name] for name in names) <= 1, served
