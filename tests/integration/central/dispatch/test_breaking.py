"""The breaker of a channel at work: rows held behind it and not counted, one probe, gradual release, reset."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.store.notifications import breakers
from fieldpost.core.delivery.breaker import BreakerPolicy, BreakerState, channel_key, record, reset
from fieldpost.core.delivery.outcome import Delivered, Evidence, Held, PermanentFailure, TransientFailure, Uncertain
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import Centre, Hanging

DOWN = Held("connection refused", phase="connect")
KEY = channel_key("mail")
REACHED, FAILED = TargetStatus.DELIVERED, TargetStatus.FAILED


@asynccontextmanager
async def node(centre: Centre, node_id: str = "node-1", **options: Any) -> AsyncIterator[Dispatcher]:
    given = {"breaker_failures_max": 3, "breaker_break_s": 60.0, "breaker_hold_s": 10.0} | options
    dispatcher = centre.dispatcher(node_id, **given)
    async with dispatcher.running():
        yield dispatcher


async def held_count(centre: Centre) -> int:
    sql = text("select count(*) from notifications where held_by is not null")
    return await centre.store.read(lambda conn: int(conn.execute(sql).scalar_one()))


async def open_breaker(centre: Centre, dispatcher: Dispatcher, count: int = 10) -> list[str]:
    """So many notifications, and a channel that fails until its breaker opens."""
    centre.adapter.always["ops"] = DOWN
    sent = await centre.send_many(count)
    await centre.deliver(dispatcher)
    assert (await centre.breaker()).state is BreakerState.OPEN
    return sent


@pytest.mark.req("DEC-10", "AUD-01", "AUD-03")
async def test_held_attempt_is_recorded_and_counts_against_the_channel_only(
    mailing: Centre, clock: ManualClock
) -> None:
    mailing.adapter.answer("ops", DOWN)
    sent = await mailing.send()
    async with node(mailing) as dispatcher:
        await mailing.deliver(dispatcher)
        n = await mailing.get(sent)
        assert (n.status, n.retry_count, n.next_attempt_at, n.last_error) == (Status.PENDING, 0, None, None)
        assert (n.held_by, n.held_reason) == (KEY, "connection refused")
        assert n.due_at == clock.now() + timedelta(seconds=10)
        assert await mailing.claim_of(sent) == (None, 1, 0)
        assert [a.outcome for a in await mailing.attempts(sent)] == ["held"]
        assert await mailing.story(sent) == ["notify_send submitted", "notify_deliver attempted"]
        breaker = await mailing.breaker()
        assert (breaker.state, breaker.failures, breaker.health) == (BreakerState.CLOSED, 1, "monitored")
        clock.advance(8)
        await mailing.deliver(dispatcher)
        assert mailing.adapter.count == 1, "held until its time"
        await mailing.deliver(dispatcher)
    assert (await mailing.get(sent)).status is Status.DELIVERED
    assert (await mailing.breaker()).failures == 0


@pytest.mark.req("DEC-10")
async def test_hold_does_not_change_a_retrying_row(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.answer("ops", TransientFailure("451"), DOWN)
    sent = await mailing.send()
    async with node(mailing) as dispatcher:
        await mailing.deliver(dispatcher)
        before = await mailing.get(sent)
        clock.advance(60)
        await mailing.deliver(dispatcher)
    after = await mailing.get(sent)
    assert after.status is Status.RETRYING
    assert (after.retry_count, after.next_attempt_at, after.last_error) == (
        before.retry_count,
        before.next_attempt_at,
        before.last_error,
    )
    assert after.held_by == KEY


@pytest.mark.fault(36)
async def test_hold_after_some_targets_were_reached_is_for_the_others_only(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("crew", "a@plant.example", "b@plant.example", "c@plant.example")
    results = (Target("a@plant.example", REACHED), Target("b@plant.example", FAILED, "550 no"))
    mailing.adapter.answer("crew", Held("530 log in", targets=results))
    sent = await mailing.send("crew")
    async with node(mailing) as dispatcher:
        await mailing.deliver(dispatcher)
        n = await mailing.get(sent)
        assert (n.status, n.retry_count, n.held_by) == (Status.PENDING, 0, KEY)
        assert [t.status for t in n.targets] == [REACHED, FAILED, TargetStatus.DUE]
        clock.advance(10)
        await mailing.deliver(dispatcher)
    assert mailing.adapter.envelopes[-1].targets == ("c@plant.example",)
    assert [t.status for t in (await mailing.get(sent)).targets] == [REACHED, FAILED, REACHED]


@pytest.mark.req("DEC-22", "DEC-10")
async def test_the_breaker_opens_at_its_threshold_and_no_further_call_is_made(
    mailing: Centre, clock: ManualClock
) -> None:
    async with node(mailing, slots=2, slots_per_key=1) as dispatcher:
        sent = await open_breaker(mailing, dispatcher)
        assert mailing.adapter.count == 3
        breaker = await mailing.breaker()
        assert (breaker.open_until, breaker.health) == (clock.now() + timedelta(seconds=60), "blocked")
        later = await mailing.send()
        clock.advance(50)
        await mailing.deliver(dispatcher)
    assert mailing.adapter.count == 3, "no call while it is open"
    for i in [*sent, later]:
        n = await mailing.get(i)
        assert (n.status, n.retry_count, n.held_by) == (Status.PENDING, 0, KEY)
    without_attempt = [i for i in [*sent, later] if not await mailing.attempts(i)]
    assert len(without_attempt) == 8, "rows are held in sets, no attempt is spent on them"


@pytest.mark.req("DEC-22")
async def test_another_channel_is_not_held(mailing: Centre) -> None:
    await mailing.add_channel("other", default=False)
    await mailing.add_list("healthy", channel_name="other")
    async with node(mailing, slots=2, slots_per_key=1) as dispatcher:
        await open_breaker(mailing, dispatcher)
        sent = await mailing.send("healthy")
        await mailing.deliver(dispatcher)
    assert (await mailing.get(sent)).status is Status.DELIVERED


@pytest.mark.req("DEC-22")
async def test_all_nodes_together_make_one_probe_after_the_break(mailing: Centre, clock: ManualClock) -> None:
    async with (
        node(mailing, "one", slots=2, slots_per_key=1) as one,
        node(mailing, "other", slots=2, slots_per_key=1) as other,
    ):
        await open_breaker(mailing, one)
        hanging = Hanging(DOWN)
        mailing.adapter.always["ops"] = hanging
        clock.advance(60)
        for _ in range(3):
            clock.advance(1)
            await one.sweep()
            await other.sweep()
        await mailing.adapter.called(4)
        assert (mailing.adapter.count, mailing.adapter.running) == (4, 1)
        assert (await mailing.breaker()).state is BreakerState.HALF_OPEN
        hanging.let_go()
        await one.idle()
        await other.idle()
        breaker = await mailing.breaker()
        assert (breaker.state, breaker.open_until) == (BreakerState.OPEN, clock.now() + timedelta(seconds=60))
        await mailing.deliver(one)
        await mailing.deliver(other)
        assert mailing.adapter.count == 4, "it failed: blocked for another period"


@pytest.mark.req("DEC-22", "DEC-10")
async def test_successful_probe_closes_the_breaker_and_releases_held_rows_gradually(
    mailing: Centre, clock: ManualClock
) -> None:
    async with node(mailing, slots=2, slots_per_key=1, release_batch=4) as dispatcher:
        sent = await open_breaker(mailing, dispatcher, 13)
        mailing.adapter.always["ops"] = Delivered()
        clock.advance(60)
        await dispatcher.sweep()
        await dispatcher.idle()
        assert (await mailing.breaker()).state is BreakerState.CLOSED
        assert await held_count(mailing) == 12, "the probe alone has gone through"
        left = []
        for _ in range(4):
            await mailing.deliver(dispatcher)
            left.append(await held_count(mailing))
        assert left == [8, 4, 0, 0]
    assert {(await mailing.get(i)).status for i in sent} == {Status.DELIVERED}
    assert {(await mailing.get(i)).retry_count for i in sent} == {0}


@pytest.mark.req("DEC-22")
async def test_reset_by_an_operator_releases_held_rows_at_once(mailing: Centre, clock: ManualClock) -> None:
    async with node(mailing, slots=2, slots_per_key=1) as dispatcher:
        sent = await open_breaker(mailing, dispatcher)
        mailing.adapter.always["ops"] = Delivered()
        await mailing.deliver(dispatcher)
        assert mailing.adapter.count == 3
        await mailing.store.write(breakers.change, KEY, reset)
        await mailing.deliver(dispatcher)
    assert {(await mailing.get(i)).status for i in sent} == {Status.DELIVERED}
    assert (await mailing.breaker()).health == "healthy"


@pytest.mark.req("DEC-22")
async def test_probe_of_a_dead_node_lapses_and_another_node_probes(mailing: Centre, clock: ManualClock) -> None:
    async with node(mailing, "one", slots=2, slots_per_key=1) as one:
        await open_breaker(mailing, one)
        mailing.adapter.always["ops"] = Delivered()
        clock.advance(60)
        # The dead node: it takes the probe and the row for it, and is never heard of again.
        dead = mailing.dispatcher("dead", clock=ManualClock(), grace_s=0.01)
        mailing.adapter.always["ops"] = Hanging()
        await dead.sweep()
        await mailing.adapter.called(4)
        mailing.adapter.always["ops"] = Delivered()
        await mailing.deliver(one)
        assert mailing.adapter.count == 4, "another's probe is out"
        clock.advance(90)
        await mailing.deliver(one)
        assert (await mailing.breaker()).state is BreakerState.CLOSED


@pytest.mark.req("DEC-22")
async def test_unsent_probe_leaves_the_probe_to_the_next_row(mailing: Centre, clock: ManualClock) -> None:
    async with node(mailing, slots=2, slots_per_key=1, grace_s=0.01) as dispatcher:
        await open_breaker(mailing, dispatcher)
        mailing.adapter.always["ops"] = Hanging()
        clock.advance(60)
        await dispatcher.sweep()
        await mailing.adapter.called(4)
    breaker = await mailing.breaker()
    assert (breaker.state, breaker.open_until) == (BreakerState.OPEN, clock.now())
    mailing.adapter.always["ops"] = Delivered()
    async with node(mailing, "next") as dispatcher:
        await mailing.deliver(dispatcher)
    assert (await mailing.breaker()).state is BreakerState.CLOSED


@pytest.mark.req("DEC-10")
async def test_row_held_past_its_maximum_age_parks_with_the_reason(mailing: Centre, clock: ManualClock) -> None:
    async with node(mailing, slots=2, slots_per_key=1, hold_max_s=3600.0) as dispatcher:
        sent = await open_breaker(mailing, dispatcher)
        clock.advance(3590)
        mailing.adapter.always["ops"] = DOWN
        await mailing.deliver(dispatcher)
        assert {(await mailing.get(i)).status for i in sent} == {Status.PENDING}
        clock.advance(70)
        await mailing.deliver(dispatcher)
    for i in sent:
        n = await mailing.get(i)
        assert (n.status, n.held_by, n.retry_count) == (Status.PARKED, None, 0)
        assert "held longer than 1:00:00" in str(n.last_error)
        assert "connection refused" in str(n.last_error)
        assert (await mailing.story(i))[-1] == "notify_deliver parked"
        assert [t.status for t in n.targets] in ([], ["failed"])


@pytest.mark.req("DEC-10", "DEC-15")
async def test_the_age_of_a_hold_counts_from_the_start_of_the_cycle(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.answer("ops", PermanentFailure("550"), DOWN)
    sent = await mailing.send()
    async with node(mailing, hold_max_s=3600.0) as dispatcher:
        await mailing.deliver(dispatcher)
        clock.advance(7200)
        assert await mailing.retry(sent)
        await mailing.deliver(dispatcher)
    n = await mailing.get(sent)
    assert (n.status, n.cycle, n.held_by) == (Status.PENDING, 2, KEY)


@pytest.mark.req("DEC-22")
@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (PermanentFailure("550"), BreakerState.CLOSED),
        (TransientFailure("451"), BreakerState.CLOSED),
        (Uncertain("no answer"), BreakerState.OPEN),
    ],
    ids=["refused", "not now", "no answer"],
)
async def test_answered_probe_closes_the_breaker_after_any_answer(
    mailing: Centre, clock: ManualClock, outcome: Any, state: BreakerState
) -> None:
    async with node(mailing, slots=2, slots_per_key=1) as dispatcher:
        await open_breaker(mailing, dispatcher)
        mailing.adapter.always["ops"] = outcome
        clock.advance(60)
        await dispatcher.sweep()
        await dispatcher.idle()
    assert (await mailing.breaker()).state is state


@pytest.mark.req("DEC-22")
async def test_failures_far_apart_do_not_open_the_breaker(mailing: Centre, clock: ManualClock) -> None:
    mailing.adapter.always["ops"] = DOWN
    await mailing.send()
    async with node(mailing, breaker_lapse_s=100.0) as dispatcher:
        for _ in range(5):
            await mailing.deliver(dispatcher)
            clock.advance(101)
    assert mailing.adapter.count == 5
    assert (await mailing.breaker()).state is BreakerState.CLOSED


@pytest.mark.req("DEC-22")
async def test_a_probe_that_never_reached_its_channel_leaves_the_probe_to_the_next_row(mailing: Centre) -> None:
    """A bug parks the one row that was to probe; the breaker does not wait for a lease to lapse."""
    mailing.adapter.answer("ops", Held("connection refused"))
    first, second = await mailing.send(), await mailing.send()
    dispatcher = mailing.dispatcher(breaker_failures_max=1, breaker_break_s=30, slots=2, slots_per_key=1)
    async with dispatcher.running():
        await mailing.deliver(dispatcher)
        assert (await mailing.breaker()).health == "blocked"
        mailing.adapter.answer("ops", ValueError("a bug"))
        mailing.clock.advance(31)  # type: ignore[attr-defined]
        await mailing.deliver(dispatcher)
        statuses = {(await mailing.get(one)).status for one in (first, second)}
        assert Status.PARKED in statuses

        await mailing.deliver(dispatcher)
        await mailing.deliver(dispatcher)

        assert (await mailing.breaker()).health == "healthy"
        assert {(await mailing.get(one)).status for one in (first, second)} == {Status.PARKED, Status.DELIVERED}


@pytest.mark.req("DEC-22")
async def test_a_breaker_that_the_last_refresh_did_not_read_is_respected(mailing: Centre, clock: ManualClock) -> None:
    """Another node opens the breaker of a channel that has no due rows here; the next row makes no call."""
    async with node(mailing) as dispatcher:
        await dispatcher.sweep()
        rule = partial(record, evidence=Evidence.FAILS, error="refused", policy=BreakerPolicy(1), now=clock.now())
        await mailing.store.write(breakers.change, KEY, rule)
        sent = await mailing.send()
        await dispatcher.sweep()
        await dispatcher.idle()
        n = await mailing.get(sent)
        assert (mailing.adapter.count, n.status, n.held_by) == (0, Status.PENDING, KEY)


@pytest.mark.req("DEC-22")
async def test_successive_probes_of_a_breaker_take_rows_of_different_lists(mailing: Centre, clock: ManualClock) -> None:
    """A hundred rows of one bad list have waited for longest; the other lists of the channel are probed in turn."""
    for name in ("b", "c"):
        await mailing.add_list(name)
    mailing.adapter.always = dict.fromkeys(("ops", "b", "c"), DOWN)
    async with node(mailing) as one, node(mailing, "node-2") as two:
        await open_breaker(mailing, one, 100)
        others = []
        for name in ("b", "c"):
            clock.advance(1)
            others += await mailing.send_many(5, name)
        await mailing.deliver(one)
        probed = []
        for number in range(6):
            before = mailing.adapter.count
            clock.advance(60)
            await mailing.deliver((one, two)[number % 2])
            probed += [envelope.list_name for envelope in mailing.adapter.envelopes[before:]]
        assert sorted(probed[:3]) == ["b", "c", "ops"], "one probe per period, each of another list"
        assert probed[3:] == probed[:3]
        mailing.adapter.always = {"ops": DOWN}
        clock.advance(60)
        await mailing.deliver(one)
        clock.advance(60)
        await mailing.deliver(one)
        delivered = {(await mailing.get(i)).status for i in others}
        assert delivered == {Status.DELIVERED}, "healthy lists are delivered to within two periods"
