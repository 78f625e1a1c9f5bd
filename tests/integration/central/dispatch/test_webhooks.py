"""Dispatch of webhooks: schedule, causes and effects, breakers, states, draining, notices."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch import subscription_keeper
from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.dispatch.subscription_keeper import SubscriptionKeeper
from fieldpost.central.store.events import subscriptions as rows
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import (
    Delivered,
    Evidence,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
)
from fieldpost.core.delivery.routing import PathDefaults
from fieldpost.core.delivery.slots import STALL_S
from fieldpost.core.events.event import notification_id_of
from fieldpost.core.events.subscription import SubscriptionState, subscription_key
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.centre import Centre, Hanging
from support.front import ADMIN
from support.hooks import FAILED, Hooks

MINUTE_S = 60.0
BREAK_S = 300.0


@pytest.fixture
def hooks(centre: Centre, clock: ManualClock) -> Hooks:
    return Hooks(centre, clock)


@pytest.mark.req("WHK-05", "WHK-07", "WHK-08", "WHK-21")
@pytest.mark.dec("DEC-19", "DEC-21", "DEC-45", "DEC-50")
async def test_the_schedule_row_by_row(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    sent = await hooks.one(subscription)
    hooks.adapter.always["billing"] = FAILED
    waits = []
    for attempt in range(1, 7):
        await hooks.centre.deliver()
        n = await hooks.get(sent)
        assert len(await hooks.centre.attempts(sent)) == attempt
        if n.next_attempt_at is None:
            break
        waits.append((n.next_attempt_at - clock.now()).total_seconds() / MINUTE_S)
        assert n.status is Status.RETRYING
        clock.advance(waits[-1] * MINUTE_S - 2)
        await hooks.centre.deliver()
        assert len(await hooks.centre.attempts(sent)) == attempt, "not before its time"
    assert waits == [15, 30, 60, 240, 1440]
    assert (n.status, n.last_error) == (Status.PARKED, "the receiver answered 500")


@pytest.mark.req("WHK-05", "WHK-15")
@pytest.mark.dec("DEC-19", "DEC-22")
@pytest.mark.parametrize("block_s", [BREAK_S, 3600.0, 14 * 3600.0], ids=["5m", "1h", "14h"])
async def test_a_block_of_any_length_costs_no_attempt(hooks: Hooks, clock: ManualClock, block_s: float) -> None:
    """Before each row of the schedule the subscription is blocked; the waits and their number stay the same. All blocks
    together stay below five days, after which a row behind a breaker is parked."""
    subscription = await hooks.subscribe()
    sent = await hooks.one(subscription)
    hooks.adapter.always["billing"] = FAILED
    waits = []
    for attempt in range(1, 7):
        await hooks.hold_open(subscription, block_s)
        await hooks.centre.deliver()
        held = await hooks.get(sent)
        assert held.held_by == subscription_key(subscription.subscription_id)
        clock.advance(block_s / 2)
        await hooks.centre.deliver()
        assert (await hooks.get(sent)).retry_count == held.retry_count == attempt - 1, "no attempt is spent"
        assert hooks.adapter.count == attempt - 1, "and no call is made"
        clock.advance(block_s / 2)
        await hooks.centre.deliver()
        n = await hooks.get(sent)
        assert hooks.adapter.count == attempt, "the probe is its next attempt"
        if n.next_attempt_at is None:
            break
        waits.append((n.next_attempt_at - clock.now()).total_seconds() / MINUTE_S)
        clock.advance(waits[-1] * MINUTE_S)
    assert waits == [15, 30, 60, 240, 1440]
    assert n.status is Status.PARKED


GONE = PermanentFailure("the receiver answered 410", evidence=Evidence.FAILS, is_gone=True)
GIVEN_UP = PermanentFailure("the receiver answered 422, a code to give up on", evidence=Evidence.FAILS)


@pytest.mark.dec("DEC-21", "DEC-45", "DEC-46", "DEC-82")
@pytest.mark.parametrize(
    ("outcome", "status", "retries", "failures"),
    [
        (FAILED, Status.RETRYING, 1, 1),
        (TransientFailure("no connection", phase="connect", evidence=Evidence.FAILS), Status.RETRYING, 1, 1),
        (Uncertain("no answer", evidence=Evidence.FAILS), Status.RETRYING, 1, 1),
        (GIVEN_UP, Status.PARKED, 0, 1),
        (Held("no token", kind=HoldKind.OUR_SIDE, evidence=Evidence.NONE), Status.PENDING, 0, 0),
    ],
    ids=["status", "connect", "uncertain", "give up", "our side"],
)
async def test_causes_and_effects(hooks: Hooks, outcome: Outcome, status: Status, retries: int, failures: int) -> None:
    subscription = await hooks.subscribe()
    sent = await hooks.one(subscription)
    hooks.adapter.answer("billing", outcome)
    await hooks.centre.deliver()
    n = await hooks.get(sent)
    assert (n.status, n.retry_count) == (status, retries)
    assert (await hooks.breaker(subscription)).failures == failures


@pytest.mark.fault(51)
@pytest.mark.dec("DEC-45", "DEC-60")
async def test_retry_after_holds_the_whole_subscription_and_no_other(hooks: Hooks, clock: ManualClock) -> None:
    subscription, other = await hooks.subscribe(), await hooks.subscribe("stock")
    asked = replace(FAILED, error="answered 429 and asks to wait 7200 s", retry_after=timedelta(hours=2))
    hooks.adapter.answer("billing", asked)
    first = await hooks.one(subscription)
    await hooks.centre.deliver()
    until = clock.now() + timedelta(hours=2)
    [later] = await hooks.publish()
    await hooks.centre.deliver()
    n = await hooks.get(notification_id_of(later, subscription.subscription_id))
    assert (n.status, n.retry_count, n.due_at, n.held_reason) == (Status.PENDING, 0, until, asked.error)
    assert (await hooks.get(first)).due_at == until, "429 is counted, and waits as long as it asks"
    assert (await hooks.get(notification_id_of(later, other.subscription_id))).status is Status.DELIVERED
    clock.advance(2 * 3600)
    await hooks.centre.deliver()
    assert {(await hooks.get(i)).status for i in (first, n.notification_id)} == {Status.DELIVERED}


async def test_a_failure_of_ours_holds_the_whole_subscription_without_attempts(
    hooks: Hooks, clock: ManualClock
) -> None:
    await hooks.subscribe()
    hooks.adapter.always["billing"] = Held("name not resolved", kind=HoldKind.OUR_SIDE, evidence=Evidence.NONE)
    await hooks.publish(50)
    await hooks.centre.deliver()
    calls = hooks.adapter.count
    assert calls < 50, "the others learn from the first"
    await hooks.centre.deliver()
    assert hooks.adapter.count == calls
    hooks.adapter.always.clear()
    clock.advance(60)
    await hooks.centre.deliver()
    await hooks.centre.deliver()
    assert await hooks.centre.rows("select distinct status from notifications") == [("delivered",)]


@pytest.mark.fault(52)
@pytest.mark.dec("DEC-20", "DEC-48")
async def test_410_disables_the_subscription_and_parks_its_waiting_rows(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    hooks.adapter.answer("billing", FAILED, GONE)
    waiting = await hooks.one(subscription)
    await hooks.centre.deliver()
    gone = await hooks.one(subscription)
    await hooks.centre.deliver()
    await hooks.centre.deliver()
    found = await hooks.state(subscription)
    assert (found.state, found.state_by) == (SubscriptionState.DISABLED, "system")
    assert found.state_reason == "the receiver answered 410"
    assert not found.is_draining
    parked = [await hooks.get(i) for i in (waiting, gone)]
    assert {n.status for n in parked} == {Status.PARKED}
    assert parked[0].last_error == "the subscription is disabled: the receiver answered 410"
    await hooks.publish()
    assert await hooks.centre.rows("select count(*) from notifications") == [(2,)]
    assert "disabled" in await hooks.notices()
    audited = await hooks.centre.rows("select actor from audit where request_summary = 'subscription.disable'")
    assert audited == [("system",)]


@pytest.mark.req("WHK-13", "WHK-14", "WHK-15", "WHK-16")
@pytest.mark.dec("DEC-22", "DEC-46")
async def test_a_failing_receiver_is_monitored_then_blocked_and_probed_once_per_break(
    hooks: Hooks, clock: ManualClock
) -> None:
    subscription = await hooks.subscribe()
    hooks.adapter.always["billing"] = FAILED
    await hooks.one(subscription)
    await hooks.centre.deliver()
    assert (await hooks.breaker(subscription)).health == "monitored"
    await hooks.block(subscription)
    assert (await hooks.breaker(subscription)).health == "blocked"
    spent = await hooks.centre.rows("select sum(retry_count) from notifications")
    held = await hooks.publish(5)
    await hooks.centre.deliver()
    calls = hooks.adapter.count
    clock.advance(BREAK_S - 10)
    await hooks.centre.deliver()
    assert hooks.adapter.count == calls, "no call is made while it is blocked"
    assert await hooks.centre.rows("select sum(retry_count) from notifications") == spent, "and no attempt is spent"
    for _ in range(3):
        clock.advance(BREAK_S)
        await asyncio.gather(*(hooks.centre.deliver(node_id=node) for node in ("node-a", "node-b")))
        calls += 1
        assert hooks.adapter.count == calls, "one probe over both nodes"
    hooks.adapter.always.clear()
    for _ in range(40):
        clock.advance(BREAK_S)
        await hooks.centre.deliver()
    ids = [notification_id_of(event_id, subscription.subscription_id) for event_id in held]
    assert {(await hooks.get(i)).status for i in ids} == {Status.DELIVERED}
    assert (await hooks.breaker(subscription)).health == "healthy"


@pytest.mark.fault(54)
@pytest.mark.dec("DEC-46")
async def test_held_rows_are_released_in_steps_that_grow_with_success(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    await hooks.block(subscription)
    await hooks.publish(100)
    await hooks.centre.deliver()
    hooks.adapter.always.clear()
    clock.advance(BREAK_S)
    steps = []
    dispatcher = hooks.centre.dispatcher()
    async with dispatcher.running():
        for _ in range(12):
            before = hooks.adapter.count
            clock.advance(1)
            await dispatcher.sweep()
            await dispatcher.idle()
            steps.append(hooks.adapter.count - before)
    assert steps[0] == 1, "the probe"
    assert sum(steps) >= 100
    growing = [step for step in steps if step]
    assert growing[:5] == sorted(growing[:5]), steps
    assert growing[1] <= 4, steps


@pytest.mark.dec("DEC-09", "DEC-47")
async def test_a_receiver_that_does_not_answer_gets_no_further_slot(hooks: Hooks, clock: ManualClock) -> None:
    await hooks.subscribe()
    hanging = Hanging()
    hooks.adapter.answer("billing", hanging)
    dispatcher: Dispatcher = hooks.centre.dispatcher()
    async with dispatcher.running():
        await hooks.publish()
        await dispatcher.sweep()
        await hooks.adapter.called(1)
        for _ in range(10):
            clock.advance(STALL_S)
            await hooks.publish(5)
            await dispatcher.sweep()
        assert hooks.adapter.count == 1, "nothing more is sent to it, also not when its attempt has become long"
        hanging.let_go()
        await dispatcher.idle()
        await hooks.centre.drain(dispatcher)
    assert await hooks.centre.rows("select status, count(*) from notifications group by status") == [("delivered", 51)]


@pytest.mark.req("WHK-17")
@pytest.mark.dec("DEC-46")
async def test_open_breaker_without_a_probe_lapses(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    await hooks.block(subscription)
    await hooks.centre.execute("delete from targets", "delete from attempts", "delete from notifications")
    clock.advance(599)
    await hooks.centre.deliver()
    assert (await hooks.breaker(subscription)).health == "blocked"
    clock.advance(61)
    await hooks.centre.deliver()
    after = await hooks.breaker(subscription)
    assert (after.health, after.failures) == ("healthy", 0)
    assert after.failing_since is not None, "only a success ends it"


@pytest.mark.dec("DEC-46", "DEC-48", "DEC-52")
async def test_a_subscription_that_fails_for_seven_days_is_warned_about_and_then_disabled(
    hooks: Hooks, clock: ManualClock
) -> None:
    subscription = await hooks.subscribe()
    hooks.adapter.always["billing"] = FAILED
    for _ in range(15):
        await hooks.publish()
        await hooks.centre.deliver()
        clock.advance(12 * 3600)
    await hooks.centre.deliver()
    await hooks.centre.deliver()
    found = await hooks.state(subscription)
    assert found.state is SubscriptionState.DISABLED
    assert found.state_reason == "no success for 7 days; last error: the receiver answered 500"
    percents = await hooks.centre.rows("select payload from notices where topic like '%failing' order by created_at")
    assert [p for p in (50, 70, 90) if f'"percent": {p}' in str(percents).replace("'", '"')] == [50, 70, 90]
    assert (await hooks.notices()).count("disabled") == 1


@pytest.mark.dec("DEC-48", "DEC-80")
async def test_a_paused_subscription_holds_its_rows_for_as_long_as_the_pause_lasts(
    hooks: Hooks, clock: ManualClock
) -> None:
    subscription = await hooks.subscribe()
    await hooks.actions.pause(ADMIN, subscription.subscription_id, 1, "maintenance")
    sent = await hooks.one(subscription)
    await hooks.centre.deliver()
    clock.advance(30 * 24 * 3600)
    await hooks.centre.deliver()
    n = await hooks.get(sent)
    assert (n.status, hooks.adapter.count) == (Status.PENDING, 0), "a pause never parks a row by age"
    assert n.held_reason == f"The subscription 'billing' is paused by {ADMIN.name}: maintenance"
    await hooks.actions.resume(ADMIN, subscription.subscription_id, 2)
    await hooks.centre.deliver()
    await hooks.centre.deliver()
    assert (await hooks.get(sent)).status is Status.DELIVERED


@pytest.mark.dec("DEC-80")
async def test_time_in_a_pause_does_not_age_a_row(hooks: Hooks, clock: ManualClock) -> None:
    """Afterwards it has its whole schedule, and five days behind a breaker."""
    subscription = await hooks.subscribe()
    await hooks.actions.pause(ADMIN, subscription.subscription_id, 1)
    sent = await hooks.one(subscription)
    await hooks.centre.deliver()
    hooks.adapter.always["billing"] = FAILED
    clock.advance(6 * 24 * 3600)
    await hooks.actions.resume(ADMIN, subscription.subscription_id, 2)
    for _ in range(2):
        await hooks.centre.deliver()
    n = await hooks.get(sent)
    assert (n.status, n.retry_count) == (Status.RETRYING, 1), n.last_error
    await hooks.hold_open(subscription, 4 * 24 * 3600)
    clock.advance(15 * MINUTE_S)
    await hooks.centre.deliver()
    clock.advance(3 * 24 * 3600)
    await hooks.centre.deliver()
    assert (await hooks.get(sent)).status is Status.RETRYING


@pytest.mark.dec("DEC-80")
async def test_time_behind_a_rate_limit_does_not_age_a_row(hooks: Hooks, clock: ManualClock) -> None:
    await hooks.subscribe(rate="1/1d")
    await hooks.publish(8)
    for _ in range(6):
        for _ in range(2):
            await hooks.centre.deliver()
        clock.advance(24 * 3600)
    hooks.adapter.always["billing"] = FAILED
    for _ in range(2):
        await hooks.centre.deliver()
    failed = await hooks.centre.rows("select status from notifications where retry_count = 1")
    assert failed == [("retrying",)], "its turn came on the seventh day"


@pytest.mark.dec("DEC-81")
async def test_rows_of_an_unverified_subscription_are_held(hooks: Hooks) -> None:
    subscription = await hooks.subscribe()
    unverified = replace(subscription, state=SubscriptionState.UNVERIFIED)
    assert await hooks.centre.store.write(rows.change, unverified, hooks.clock.now())
    sent = await hooks.one(subscription)
    await hooks.centre.deliver()
    assert (await hooks.get(sent)).held_reason == (
        "The receiver of the subscription 'billing' has not answered a signed test with 2xx yet"
    )
    assert hooks.adapter.count == 0


async def test_a_long_drain_is_done_in_turns(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_keeper, "DRAIN_BATCH", 1)
    monkeypatch.setattr(subscription_keeper, "DRAIN_BATCHES", 2)
    subscription = await hooks.subscribe()
    await hooks.actions.pause(ADMIN, subscription.subscription_id, 1)
    waiting = [await hooks.one(subscription) for _ in range(5)]
    await hooks.actions.disable(ADMIN, subscription.subscription_id, 2)
    parked = []
    keeper = SubscriptionKeeper(hooks.centre.store, "node-1", WebhookOptions(), PathDefaults())
    for turn in range(4):
        await keeper.tend(3, float(turn))
        parked.append([(await hooks.get(one)).status for one in waiting].count(Status.PARKED))
    assert parked == [2, 4, 5, 5], "two batches in a turn, and the next turn without waiting a minute"
    assert not (await hooks.state(subscription)).is_draining


@pytest.mark.dec("DEC-48")
async def test_many_subscriptions_drain_in_turns_and_a_bounded_number_of_batches_at_a_time(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries wait for the batches of a refresh, however many subscriptions were disabled before it."""
    monkeypatch.setattr(subscription_keeper, "DRAIN_BATCH", 1)
    monkeypatch.setattr(subscription_keeper, "DRAIN_BATCHES", 4)
    made = [await hooks.subscribe(f"hook-{number}") for number in range(4)]
    for one in made:
        await hooks.actions.pause(ADMIN, one.subscription_id, 1)
    await hooks.publish(3)
    for one in made:
        await hooks.actions.disable(ADMIN, one.subscription_id, 2)
    keeper = SubscriptionKeeper(hooks.centre.store, "node-1", WebhookOptions(), PathDefaults())
    turns = []
    for turn in range(5):
        await keeper.tend(3, float(turn))
        parked = "select count(*) from notifications where status = 'parked' group by delivery_key"
        turns.append([count for (count,) in await hooks.centre.rows(parked)])
    assert turns == [[1] * 4, [2] * 4, [3] * 4, [3] * 4, [3] * 4]
    assert not any([(await hooks.state(one)).is_draining for one in made])


@pytest.mark.dec("DEC-48", "DEC-66")
@pytest.mark.parametrize("is_removed", [False, True], ids=["disabled", "removed"])
async def test_waiting_rows_are_parked_or_discarded_for_every_reason_of_waiting(
    hooks: Hooks, clock: ManualClock, is_removed: bool
) -> None:
    subscription = await hooks.subscribe()
    hooks.adapter.answer("billing", FAILED)
    retrying = await hooks.one(subscription)
    await hooks.centre.deliver()
    await hooks.actions.pause(ADMIN, subscription.subscription_id, 1)
    held = await hooks.one(subscription)
    await hooks.centre.deliver()
    due = await hooks.one(subscription)
    end = hooks.actions.remove if is_removed else hooks.actions.disable
    await end(ADMIN, subscription.subscription_id, 2, "no longer needed")
    await hooks.centre.deliver()
    expected = Status.DISCARDED if is_removed else Status.PARKED
    for notification_id in (retrying, held, due):
        n = await hooks.get(notification_id)
        assert n.status is expected
        state = "removed" if is_removed else "disabled"
        assert n.last_error == f"the subscription is {state}: no longer needed"
        entries = [e for e in await hooks.centre.audit(notification_id) if e.status.value in ("parked", "discarded")]
        assert [e.status.value for e in entries] == (["parked", "discarded"] if is_removed else ["parked"])
        assert {e.actor for e in entries} == {ADMIN.name}
    assert not (await hooks.state(subscription)).is_draining


@pytest.mark.dec("DEC-48")
@pytest.mark.parametrize(
    ("outcome", "status"), [(Delivered(), Status.DELIVERED), (FAILED, Status.DISCARDED)], ids=["accepted", "failed"]
)
async def test_a_row_in_flight_of_a_removed_subscription_ends_by_its_claim(
    hooks: Hooks, clock: ManualClock, outcome: Outcome, status: Status
) -> None:
    subscription = await hooks.subscribe()
    hanging = Hanging(outcome)
    hooks.adapter.answer("billing", hanging)
    sent = await hooks.one(subscription)
    dispatcher: Dispatcher = hooks.centre.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await hooks.adapter.called(1)
        await hooks.actions.remove(ADMIN, subscription.subscription_id, 1)
        clock.advance(2)
        await dispatcher.sweep()
        assert (await hooks.get(sent)).status is Status.PENDING
        hanging.let_go()
        await dispatcher.idle()
        clock.advance(61)
        await dispatcher.sweep()
    assert (await hooks.get(sent)).status is status


@pytest.mark.fault(75)
@pytest.mark.req("WHK-02")
async def test_waiting_rows_use_the_changed_url(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    await hooks.block(subscription)
    calls = hooks.adapter.count
    await hooks.actions.change(ADMIN, subscription.subscription_id, 1, settings={"url": "https://new.example/"})
    hooks.adapter.always.clear()
    for _ in range(30):
        clock.advance(1800)
        await hooks.centre.deliver()
    later = hooks.adapter.envelopes[calls:]
    assert later
    assert {envelope.settings["url"] for envelope in later} == {"https://new.example/"}
    assert await hooks.centre.rows("select distinct status from notifications") == [("delivered",)]


async def test_the_envelope_carries_the_event(hooks: Hooks) -> None:
    await hooks.subscribe()
    [event_id] = await hooks.publish()
    await hooks.centre.deliver()
    [envelope] = hooks.adapter.envelopes
    assert envelope.event is not None
    assert (envelope.event.event.event_id, envelope.event.event.payload) == (event_id, '{"n": 0}')


@pytest.mark.dec("DEC-52")
async def test_notices_are_written_once_per_occurrence(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe()
    await hooks.block(subscription)
    await hooks.publish(3)
    await hooks.centre.deliver()
    assert await hooks.notices() == ["failing", "blocked"]
    clock.advance(BREAK_S)
    await hooks.centre.deliver()
    assert await hooks.notices() == ["failing", "blocked"], "a failed probe is the same outage"
    hooks.adapter.always.clear()
    clock.advance(BREAK_S)
    await hooks.centre.deliver()
    await hooks.centre.deliver()
    assert await hooks.notices() == ["failing", "blocked", "recovered"]


@pytest.mark.dec("DEC-52")
async def test_a_user_who_disables_a_subscription_causes_one_notice(hooks: Hooks) -> None:
    subscription = await hooks.subscribe()
    await hooks.actions.disable(ADMIN, subscription.subscription_id, 1, "moved to the new system")
    await hooks.actions.change(ADMIN, subscription.subscription_id, 2, name="old billing")
    await hooks.actions.enable(ADMIN, subscription.subscription_id, 3, None)
    assert await hooks.notices() == ["disabled"]
    [(payload,)] = await hooks.centre.rows("select payload from notices")
    data = payload if isinstance(payload, dict) else json.loads(str(payload))
    assert data == {"reason": "moved to the new system", "by": ADMIN.name}


def test_the_breaker_settings_reach_the_paths() -> None:
    policy = WebhookOptions(failures_max=3, break_s=5.0, lapse_s=10.0).breaker
    assert (policy.failures_max, policy.break_s, policy.lapse_s) == (3, 5.0, 10.0)


@pytest.mark.dec("DEC-80")
async def test_a_rate_is_kept_over_two_nodes_and_every_row_gets_its_turn(hooks: Hooks, clock: ManualClock) -> None:
    subscription = await hooks.subscribe(rate="20/1m")
    other = await hooks.subscribe("stock")
    events = await hooks.publish(50)
    started: list[tuple[float, int]] = []
    for _ in range(40):
        before = len(hooks.adapter.sent("billing"))
        await asyncio.gather(*(hooks.centre.deliver(node_id=node) for node in ("node-a", "node-b")))
        started.append((clock.monotonic(), len(hooks.adapter.sent("billing")) - before))
        clock.advance(4)
    for begin, _ in started:
        assert sum(count for at, count in started if begin <= at < begin + 60) <= 20
    assert len(hooks.adapter.sent("billing")) == 50, "all had their turn"
    assert len(set(hooks.adapter.sent("billing"))) == 50
    n = await hooks.get(notification_id_of(events[0], subscription.subscription_id))
    assert (n.status, n.retry_count) == (Status.DELIVERED, 0)
    assert len(hooks.adapter.sent("stock")) == 50
    assert (await hooks.breaker(other)).wait_until is None


@pytest.mark.dec("DEC-80")
async def test_rows_that_wait_for_a_rate_are_held_with_their_turn_and_never_parked_by_age(
    hooks: Hooks, clock: ManualClock
) -> None:
    await hooks.subscribe(rate="1/1d")
    await hooks.publish(12)
    await hooks.centre.deliver()
    await hooks.centre.deliver()
    held = await hooks.centre.rows("select due_at, held_reason from notifications where held_by is not null")
    assert len(held) == 11
    outcomes = [outcome for (outcome,) in await hooks.centre.rows("select outcome from attempts")]
    assert sorted(outcomes) == ["delivered", "held"], "one finds the rate used up; the others wait without an attempt"
    assert len({due_at for due_at, _ in held}) > 8, "one by one"
    assert {reason for _, reason in held} == {"the rate limit is used up"}
    for _ in range(20):
        clock.advance(24 * 3600)
        await hooks.centre.deliver()
        await hooks.centre.deliver()
    assert await hooks.centre.rows("select distinct status from notifications") == [("delivered",)]
