"""Whatever outcomes come in whatever order, a notification's life keeps to its rules."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.holds import HoldKind, held_by
from fieldpost.core.delivery.lifecycle import Hold, Policy, Transition, decide
from fieldpost.core.delivery.outcome import Delivered, Held, Outcome, PermanentFailure, TransientFailure, Uncertain
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.errors import Conflict
from fieldpost.core.notification import LIVE, Notification, Status, Target, TargetStatus
from support.sample import DUE, FAILED, NOW, REACHED, a_notification

ADDRESSES = ("a@example.org", "b@example.org", "c@example.org")
ATTEMPTS_MAX = 3
DELAY = timedelta(minutes=1)
HOLD_MAX = timedelta(days=5)

errors = st.sampled_from(["", "451 later", "bad \x00 text", "x" * 3000])
# What an adapter may say of targets: some, none, a stranger, in any status, with or without a reason.
named = st.lists(
    st.builds(Target, st.sampled_from([*ADDRESSES, "stranger@example.org"]), st.sampled_from(TargetStatus), errors),
    max_size=4,
).map(tuple)
waits = st.none() | st.sampled_from([timedelta(0), timedelta(seconds=1), timedelta(hours=1)])
outcomes = st.one_of(
    st.builds(Delivered, named),
    st.builds(TransientFailure, errors, named, waits),
    st.builds(PermanentFailure, errors, named),
    st.builds(Uncertain, errors, named, waits),
    st.builds(Held, errors, targets=named),
)
policies = st.builds(
    Policy,
    st.builds(Fixed, st.just(DELAY), st.integers(1, ATTEMPTS_MAX), st.sampled_from([0.0, 0.5])),
    st.booleans(),
    st.just(HOLD_MAX),
)
# What happens next: an attempt's outcome, or what an operator does.
events = st.lists(st.one_of(outcomes, st.sampled_from([lifecycle.retry, lifecycle.discard])), max_size=20)
steps = st.sampled_from([timedelta(seconds=1), DELAY, HOLD_MAX / 2, -DELAY])


@dataclass
class Life:
    """A notification, the time, and what was seen of both so far."""

    n: Notification
    now: datetime = NOW
    reached: set[str] = field(default_factory=set)

    def become(self, t: Transition) -> None:
        """As the store writes a transition."""
        changed = {target.address: target for target in t.targets}
        is_new_cycle = t.cycle != self.n.cycle
        self.n = replace(
            self.n,
            status=t.status,
            retry_count=t.retry_count,
            cycle=t.cycle,
            cycle_started_at=self.now if is_new_cycle else self.n.cycle_started_at,
            last_error=t.last_error,
            last_attempt_at=t.last_attempt_at,
            next_attempt_at=t.next_attempt_at,
            due_at=t.due_at,
            delivered_at=t.delivered_at,
            terminal_at=t.terminal_at,
            held_by=t.held_by,
            held_reason=t.held_reason,
            targets=tuple(changed.get(target.address, target) for target in self.n.targets),
        )


def check_shape(n: Notification) -> None:
    """What the CHECK constraints of the table repeat."""
    assert (n.status is Status.RETRYING) == (n.next_attempt_at is not None)
    assert (n.status in LIVE) == (n.due_at is not None)
    assert (n.status in LIVE) == (n.terminal_at is None)
    assert (n.status is Status.DELIVERED) == (n.delivered_at is not None)
    if n.status in (Status.PARKED, Status.RETRYING):
        assert n.last_error
    if n.held_by is not None:
        assert n.status in LIVE
    for text in (n.last_error, n.held_reason, *(t.error for t in n.targets)):
        assert text is None or ("\x00" not in text and len(text.encode()) <= 2048)
    assert all(t.error for t in n.targets if t.status is FAILED)


def check_targets(life: Life) -> None:
    n = life.n
    reached = {t.address for t in n.targets if t.status is REACHED}
    assert life.reached <= reached, "a target once reached never goes back"
    life.reached = reached
    if n.status in (Status.DELIVERED, Status.PARKED, Status.DISCARDED):
        assert not any(t.status is DUE for t in n.targets), "nothing is due on a terminal row"
    if n.status is Status.DELIVERED:
        assert all(t.status is REACHED for t in n.targets)


def attempt(life: Life, outcome: Outcome, policy: Policy, chance: float) -> None:
    before = life.n
    hold = Hold("channel:mail", life.now + timedelta(seconds=10))
    t = decide(before, outcome, policy, hold, life.now, chance)
    assert t.cycle == before.cycle
    if t.held_by == held_by(HoldKind.RECEIPT, before.delivery_key):
        check_awaiting(before, t, life.now + policy.receipt_wait)
    elif isinstance(outcome, Held):
        if t.held_by is not None:
            kept = (t.status, t.retry_count, t.next_attempt_at)
            assert kept == (before.status, before.retry_count, before.next_attempt_at)
            assert {target.address for target in t.targets} <= {target.address for target in outcome.targets}
            assert t.due_at == hold.until
        else:
            assert t.retry_count == before.retry_count
            is_settled = {t.address for t in before.targets if t.status is DUE} <= {t.address for t in outcome.targets}
            assert is_settled or (t.status is Status.PARKED and life.now - before.cycle_started_at >= HOLD_MAX)
    else:
        assert t.retry_count - before.retry_count in (0, 1)
        if t.status is Status.RETRYING:
            has_progress = any(target.status is REACHED for target in t.targets)
            assert t.retry_count == before.retry_count + (not has_progress)
            assert life.now - before.cycle_started_at < HOLD_MAX
            assert t.next_attempt_at is not None
            assert t.next_attempt_at == t.due_at >= life.now + DELAY, "never earlier than the policy promises"
    life.become(t)
    assert isinstance(policy.retry, Fixed)
    assert life.n.retry_count <= policy.retry.attempts_max


def check_awaiting(before: Notification, t: Transition, until: datetime) -> None:
    """Nothing is left to send, and a provider has accepted the rest: no retry is used up before it reports."""
    kept = (t.status, t.retry_count, t.next_attempt_at)
    assert kept == (before.status, before.retry_count, before.next_attempt_at)
    after = {target.address: target.status for target in (*before.targets, *t.targets)}.values()
    assert TargetStatus.ACCEPTED in after
    assert DUE not in after
    assert t.due_at == until


@pytest.mark.req("LIF-08", "LIF-09", "DEC-10", "DEC-11")
@given(st.sets(st.sampled_from(ADDRESSES)), policies, events, st.data())
def test_any_sequence_of_outcomes_and_actions_keeps_the_invariants(
    addresses: set[str], policy: Policy, happened: list[Outcome], data: st.DataObject
) -> None:
    life = Life(a_notification(Status.PENDING, *(Target(address) for address in sorted(addresses))))
    for event in happened:
        life.now += data.draw(steps, label="time passes")
        status = life.n.status
        if isinstance(event, Outcome):
            if status in LIVE:
                attempt(life, event, policy, data.draw(st.floats(0, 1), label="chance"))
        elif status is Status.PARKED:
            life.become(event(life.n, life.now))
            assert life.n.status in (Status.PENDING, Status.DISCARDED)
            if life.n.status is Status.PENDING:
                assert life.n.retry_count == 0
                assert not any(t.status is FAILED for t in life.n.targets)
        else:
            with pytest.raises(Conflict):
                event(life.n, life.now)
        check_shape(life.n)
        check_targets(life)


@pytest.mark.req("LIF-08", "DEC-11")
@given(st.integers(1, 6), st.sampled_from([TransientFailure("451"), Uncertain("no answer")]))
def test_a_notification_that_never_arrives_parks_at_exactly_its_last_attempt(
    attempts_max: int, outcome: Outcome
) -> None:
    life = Life(a_notification(Status.PENDING, Target("a@example.org")))
    policy = Policy(Fixed(DELAY, attempts_max))
    for number in range(1, attempts_max + 1):
        assert life.n.status in LIVE
        attempt(life, outcome, policy, 0.0)
        assert life.n.retry_count == number
    assert life.n.status is Status.PARKED
