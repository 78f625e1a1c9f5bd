"""The circuit breaker: every edge of its picture."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fieldpost.core.delivery.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    channel_key,
    give_back_probe,
    is_blocked,
    is_waiting,
    lapse,
    next_probe,
    reset,
    take_probe,
    wait,
)
from fieldpost.core.delivery.breaker import record as record_evidence
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
from support.sample import NOW

SECOND = timedelta(seconds=1)
POLICY = BreakerPolicy(failures_max=3, break_s=60, lapse_s=1800, hold_s=10)
CLOSED = Breaker("channel:mail", version=7)
REFUSED = Held("connection refused")
ANSWERS = [Delivered(), TransientFailure("451"), PermanentFailure("550")]
LEASE_S = 90


def record(breaker: Breaker, outcome: Outcome, policy: BreakerPolicy, now: datetime) -> Breaker:
    return record_evidence(breaker, outcome.evidence, outcome.error or "", policy, now)


def monitored(failures: int = 2) -> Breaker:
    breaker = CLOSED
    for _ in range(failures):
        breaker = record(breaker, REFUSED, POLICY, NOW)
    return breaker


def opened() -> Breaker:
    return monitored(3)


def probed(owner: str = "node-a") -> Breaker:
    breaker = take_probe(opened(), owner, NOW + 60 * SECOND, LEASE_S)
    assert breaker is not None
    return breaker


@pytest.mark.req("DEC-10")
@pytest.mark.parametrize(
    ("outcome", "evidence"),
    [
        *((answer, Evidence.WORKS) for answer in ANSWERS),
        (REFUSED, Evidence.FAILS),
        (Uncertain("no answer"), Evidence.NONE),
    ],
    ids=lambda value: getattr(value, "word", str(value)),
)
def test_outcome_has_default_evidence(outcome: Outcome, evidence: Evidence) -> None:
    assert outcome.evidence is evidence


def test_a_transient_failure_can_count_toward_the_block() -> None:
    """Twenty 503s in a row use up retries and open the breaker at its threshold."""
    unavailable = TransientFailure("503", evidence=Evidence.FAILS)
    breaker = CLOSED
    states = []
    for _ in range(20):
        breaker = record(breaker, unavailable, POLICY, NOW)
        states.append(breaker.state)
    assert states == [BreakerState.CLOSED] * 2 + [BreakerState.OPEN] * 18


# Closed


@pytest.mark.req("DEC-22")
def test_failures_below_the_limit_are_counted_and_do_not_block() -> None:
    breaker = record(monitored(1), Held("again"), POLICY, NOW + SECOND)
    assert breaker == replace(
        CLOSED,
        failures=2,
        first_failure_at=NOW,
        last_failure_at=NOW + SECOND,
        last_error="again",
        failing_since=NOW,
    )
    assert not is_blocked(breaker)


@pytest.mark.req("DEC-22")
def test_last_failure_of_a_series_opens_the_breaker() -> None:
    breaker = record(monitored(2), REFUSED, POLICY, NOW + SECOND)
    assert (breaker.state, breaker.failures) == (BreakerState.OPEN, 3)
    assert breaker.open_until == NOW + 61 * SECOND
    assert is_blocked(breaker)


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_answer_of_the_channel_resets_the_failures_and_keeps_the_last_error(answer: Outcome) -> None:
    assert record(monitored(2), answer, POLICY, NOW) == replace(CLOSED, last_error="connection refused")


def test_send_without_an_answer_does_not_change_a_closed_or_open_breaker() -> None:
    for breaker in (CLOSED, monitored(), opened()):
        assert record(breaker, Uncertain("no answer"), POLICY, NOW) is breaker


def test_a_success_of_a_healthy_channel_changes_nothing_to_write() -> None:
    assert record(CLOSED, Delivered(), POLICY, NOW) is CLOSED


def test_failures_lapse_after_a_quiet_period_and_not_before() -> None:
    at_the_limit = record(monitored(2), REFUSED, POLICY, NOW + 1800 * SECOND)
    past_it = record(monitored(2), REFUSED, POLICY, NOW + 1800 * SECOND + timedelta.resolution)
    assert (at_the_limit.state, at_the_limit.failures) == (BreakerState.OPEN, 3)
    assert (past_it.state, past_it.failures) == (BreakerState.CLOSED, 1)
    assert past_it.first_failure_at == past_it.last_failure_at == NOW + 1800 * SECOND + timedelta.resolution


def test_a_limit_of_one_opens_at_once() -> None:
    assert record(CLOSED, REFUSED, replace(POLICY, failures_max=1), NOW).state is BreakerState.OPEN


# Open


def test_late_failure_while_open_is_recorded_and_does_not_extend_the_break() -> None:
    breaker = record(opened(), Held("late news"), POLICY, NOW + 30 * SECOND)
    assert (breaker.state, breaker.open_until) == (BreakerState.OPEN, NOW + 60 * SECOND)
    assert (breaker.failures, breaker.last_error, breaker.last_failure_at) == (4, "late news", NOW + 30 * SECOND)


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_late_answer_while_open_closes_it(answer: Outcome) -> None:
    assert record(opened(), answer, POLICY, NOW) == replace(CLOSED, last_error="connection refused", release_size=1)


@pytest.mark.req("DEC-22")
def test_probe_is_available_when_the_break_ends_and_not_before() -> None:
    end = NOW + 60 * SECOND
    assert take_probe(opened(), "node-a", end - timedelta.resolution, LEASE_S) is None
    assert take_probe(opened(), "node-a", end, LEASE_S) == replace(
        opened(), state=BreakerState.HALF_OPEN, probe_owner="node-a", probe_until=end + LEASE_S * SECOND
    )


@pytest.mark.parametrize("breaker", [CLOSED, monitored()], ids=["healthy", "monitored"])
def test_a_closed_breaker_needs_no_probe(breaker: Breaker) -> None:
    assert take_probe(breaker, "node-a", NOW + timedelta(days=1), LEASE_S) is None


# Half-open


@pytest.mark.req("DEC-22")
def test_the_probe_is_taken_once_until_its_lease_is_over() -> None:
    end = NOW + (60 + LEASE_S) * SECOND
    assert take_probe(probed(), "node-b", end - timedelta.resolution, LEASE_S) is None
    assert take_probe(probed(), "node-a", end - timedelta.resolution, LEASE_S) is None
    taken = take_probe(probed(), "node-b", end, LEASE_S)
    assert taken is not None
    assert (taken.probe_owner, taken.probe_until) == ("node-b", end + LEASE_S * SECOND)


@pytest.mark.parametrize("answer", ANSWERS)
def test_answered_probe_closes_the_breaker(answer: Outcome) -> None:
    closed = replace(CLOSED, last_error="connection refused", release_size=1)
    assert record(probed(), answer, POLICY, NOW + 61 * SECOND) == closed


@pytest.mark.parametrize("outcome", [Held("still refused"), Uncertain("no answer")])
def test_failed_probe_opens_the_breaker_for_another_full_break(outcome: Outcome) -> None:
    at = NOW + 61 * SECOND
    breaker = record(probed(), outcome, POLICY, at)
    assert (breaker.state, breaker.open_until) == (BreakerState.OPEN, at + 60 * SECOND)
    assert (breaker.probe_owner, breaker.probe_until) == (None, None)
    assert (breaker.failures, breaker.first_failure_at) == (4, NOW)


def test_failed_probe_reopens_the_breaker_even_if_the_failures_are_old() -> None:
    breaker = record(probed(), REFUSED, POLICY, NOW + timedelta(days=1))
    assert (breaker.state, breaker.failures) == (BreakerState.OPEN, 4)


def test_failed_probe_reopens_the_breaker_even_if_the_limit_was_raised() -> None:
    after = record(probed(), REFUSED, replace(POLICY, failures_max=100), NOW + 60 * SECOND)
    assert (after.state, after.open_until) == (BreakerState.OPEN, NOW + 120 * SECOND)
    assert (after.probe_owner, after.probe_until) == (None, None)


def test_released_probe_leaves_the_breaker_open_and_due_for_another_at_once() -> None:
    at = NOW + 70 * SECOND
    breaker = give_back_probe(probed("node-a"), "node-a", at)
    assert breaker == replace(opened(), open_until=at)
    assert take_probe(breaker, "node-b", at, LEASE_S) is not None


@pytest.mark.parametrize(
    "breaker", [CLOSED, monitored(), opened(), probed("node-b")], ids=["healthy", "monitored", "open", "another's"]
)
def test_only_the_owner_can_release_a_probe(breaker: Breaker) -> None:
    assert give_back_probe(breaker, "node-a", NOW) is breaker


# Words and times for those who look


@pytest.mark.req("DEC-22")
@pytest.mark.parametrize(
    ("breaker", "health"),
    [(CLOSED, "healthy"), (monitored(), "monitored"), (opened(), "blocked"), (probed(), "blocked")],
)
def test_health_has_the_labels_of_the_console(breaker: Breaker, health: str) -> None:
    assert breaker.health == health
    assert is_blocked(breaker) == (health == "blocked")


@pytest.mark.parametrize(
    ("breaker", "seconds"),
    [(CLOSED, 10), (monitored(), 10), (opened(), 60), (probed(), 60 + LEASE_S)],
    ids=["healthy", "monitored", "open", "half-open"],
)
def test_next_probe_of_a_held_row(breaker: Breaker, seconds: int) -> None:
    assert next_probe(breaker, POLICY, NOW) == NOW + seconds * SECOND


@pytest.mark.req("DEC-22")
@pytest.mark.parametrize("breaker", [monitored(), opened(), probed()])
def test_reset_closes_the_breaker_and_keeps_key_version_and_last_error(breaker: Breaker) -> None:
    size = 1 if is_blocked(breaker) else 0
    closed = replace(CLOSED, last_error="connection refused", failing_since=NOW, release_size=size)
    assert reset(breaker) == closed
    assert reset(reset(breaker)) == reset(breaker)


def test_last_error_is_truncated_to_the_storable_length() -> None:
    breaker = record(CLOSED, Held("x\x00" * 5000), POLICY, NOW)
    assert len(str(breaker.last_error).encode()) <= 2048
    assert "\x00" not in str(breaker.last_error)


def test_breaker_key_of_a_channel() -> None:
    assert channel_key("mail") == "channel:mail"


# Lapse, outage, release steps, waits


@pytest.mark.req("WHK-17")
@pytest.mark.dec("DEC-46")
@pytest.mark.parametrize("breaker", [monitored(), opened()], ids=["monitored", "open"])
def test_both_unhealthy_states_lapse_without_a_call(breaker: Breaker) -> None:
    assert lapse(breaker, POLICY, NOW + 1800 * SECOND) is breaker
    lapsed = lapse(breaker, POLICY, NOW + 1801 * SECOND)
    assert (lapsed.state, lapsed.failures) == (BreakerState.CLOSED, 0)
    assert lapsed.failing_since == NOW, "only a success ends it"


def test_a_probe_in_progress_does_not_lapse_and_an_abandoned_one_does() -> None:
    running = replace(probed(), probe_until=NOW + 3600 * SECOND)
    assert lapse(running, POLICY, NOW + 1801 * SECOND) is running
    assert lapse(probed(), POLICY, NOW + 1801 * SECOND).state is BreakerState.CLOSED


@pytest.mark.dec("DEC-46")
def test_only_a_success_clears_failing_since() -> None:
    breaker = record(lapse(opened(), POLICY, NOW + 1801 * SECOND), REFUSED, POLICY, NOW + 1802 * SECOND)
    assert (breaker.failures, breaker.failing_since) == (1, NOW)
    assert record(breaker, Delivered(), POLICY, NOW + 1803 * SECOND).failing_since is None


@pytest.mark.dec("DEC-46")
def test_release_steps_double_with_each_success_and_start_over_with_a_failure() -> None:
    breaker = record(probed(), Delivered(), POLICY, NOW)
    sizes = []
    for _ in range(12):
        sizes.append(breaker.release_size)
        breaker = record(breaker, Delivered(), POLICY, NOW)
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0, 0]
    growing = record(record(probed(), Delivered(), POLICY, NOW), Delivered(), POLICY, NOW)
    assert record(growing, REFUSED, POLICY, NOW).release_size == 1


def test_a_wait_holds_the_path_until_its_end_and_a_shorter_one_changes_nothing() -> None:
    waiting = wait(CLOSED, NOW + 60 * SECOND, HoldKind.RATE_LIMIT, "the receiver asks to wait")
    assert is_waiting(waiting, NOW + 59 * SECOND)
    assert not is_waiting(waiting, NOW + 60 * SECOND)
    assert wait(waiting, NOW + 30 * SECOND, HoldKind.OUR_SIDE, "other") is waiting
    assert record(waiting, Delivered(), POLICY, NOW).wait_until == NOW + 60 * SECOND
    assert reset(waiting).wait_until is None
