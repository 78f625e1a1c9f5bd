"""The life of a notification: which transition follows from what."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.lifecycle import Hold, Policy, Transition, decide
from fieldpost.core.delivery.outcome import (
    Delivered,
    Held,
    Outcome,
    PermanentFailure,
    TransientFailure,
    Uncertain,
    fold,
)
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.errors import Conflict
from fieldpost.core.notification import LIVE, Notification, Status, Target
from support.sample import DUE, FAILED, MINUTE, NOW, REACHED, a_notification

A, B, C = (Target(f"{name}@example.org") for name in "abc")
POLICY = Policy(Fixed(timedelta(minutes=2), attempts_max=3))
HOLD = Hold("channel:mail", NOW + MINUTE)


def after(n: Notification, outcome: Outcome, policy: Policy = POLICY) -> Transition:
    return decide(n, outcome, policy, HOLD, NOW, 0.0)


def reached(target: Target) -> Target:
    return Target(target.address, REACHED)


def failed(target: Target, error: str = "550 unknown") -> Target:
    return Target(target.address, FAILED, error)


def due(target: Target, error: str = "450 later") -> Target:
    return Target(target.address, DUE, error)


# The transition table


@pytest.mark.req("DEC-10")
@pytest.mark.parametrize("before", [Status.PENDING, Status.RETRYING])
@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Delivered(), Status.DELIVERED),
        (TransientFailure("451 later"), Status.RETRYING),
        (PermanentFailure("550 no"), Status.PARKED),
        (Uncertain("no answer"), Status.RETRYING),
        (Held("connection refused"), None),
    ],
    ids=lambda value: getattr(value, "word", value),
)
def test_each_outcome_leads_to_its_one_status(before: Status, outcome: Outcome, status: Status | None) -> None:
    assert after(a_notification(before, A), outcome).status is (status or before)


@pytest.mark.req("LIF-04", "LIF-07")
def test_a_delivered_notification_has_its_time_and_targets() -> None:
    assert after(a_notification(Status.RETRYING, A, B), Delivered()) == Transition(
        status=Status.DELIVERED,
        retry_count=1,
        cycle=1,
        last_error="451 try later",
        last_attempt_at=NOW,
        delivered_at=NOW,
        terminal_at=NOW,
        targets=(reached(A), reached(B)),
    )


@pytest.mark.req("LIF-03", "LIF-08", "LIF-09")
def test_transient_failure_is_counted_and_retried_after_the_delay() -> None:
    assert after(a_notification(Status.PENDING, A), TransientFailure("451 later")) == Transition(
        status=Status.RETRYING,
        retry_count=1,
        cycle=1,
        last_error="451 later",
        last_attempt_at=NOW,
        next_attempt_at=NOW + 2 * MINUTE,
        due_at=NOW + 2 * MINUTE,
        targets=(due(A, "451 later"),),
    )


@pytest.mark.req("LIF-08", "LIF-05")
@pytest.mark.parametrize("outcome", [TransientFailure("451 later"), Uncertain("no answer")])
def test_the_last_attempt_of_the_policy_parks_with_its_error_and_is_counted_too(outcome: Outcome) -> None:
    made = after(a_notification(Status.RETRYING, A, retry_count=2), outcome)
    assert (made.status, made.retry_count, made.last_error) == (Status.PARKED, 3, outcome.error)
    assert made.targets == (failed(A, str(outcome.error)),)


@pytest.mark.req("LIF-08", "RES-09", "DEC-73")
@pytest.mark.parametrize("retry_count", [0, 2])
@pytest.mark.parametrize("kind", [TransientFailure, Uncertain])
def test_attempt_that_reached_another_target_uses_up_no_retry(
    kind: type[TransientFailure | Uncertain], retry_count: int
) -> None:
    n = a_notification(Status.RETRYING, A, B, retry_count=retry_count)
    made = after(n, kind("421 enough", (reached(A), due(B))))
    assert (made.status, made.retry_count, made.last_error) == (Status.RETRYING, retry_count, "421 enough")
    assert made.due_at == NOW + 2 * MINUTE


@pytest.mark.req("DEC-73")
def test_target_reached_before_is_not_progress() -> None:
    n = a_notification(Status.RETRYING, reached(A), B, retry_count=2)
    made = after(n, TransientFailure("421 enough", (reached(A), due(B))))
    assert (made.status, made.retry_count) == (Status.PARKED, 3)


@pytest.mark.req("DEC-73")
@pytest.mark.parametrize("results", [(reached(A), due(B)), (due(A), due(B))], ids=["progress", "none"])
@pytest.mark.parametrize("outcome", [TransientFailure, Uncertain])
def test_the_maximum_age_of_the_cycle_limits_all_attempts(
    outcome: type[TransientFailure | Uncertain], results: tuple[Target, ...]
) -> None:
    policy = replace(POLICY, hold_max=timedelta(days=5))
    made = {}
    for age in (timedelta(days=5) - MINUTE, timedelta(days=5)):
        n = replace(a_notification(Status.RETRYING, A, B), cycle_started_at=NOW - age)
        made[age] = after(n, outcome("421 enough", results), policy)
    young, old = made.values()
    assert (young.status, old.status) == (Status.RETRYING, Status.PARKED)
    assert (old.last_error or "").startswith("not delivered within 5 days")
    assert not any(target.status is DUE for target in old.targets)


@pytest.mark.req("LIF-10", "LIF-05", "DEC-11")
def test_a_permanent_failure_parks_at_once_and_is_not_counted() -> None:
    assert after(a_notification(Status.PENDING, A), PermanentFailure("554 refused")) == Transition(
        status=Status.PARKED,
        retry_count=0,
        cycle=1,
        last_error="a@example.org: 554 refused",
        last_attempt_at=NOW,
        terminal_at=NOW,
        targets=(failed(A, "554 refused"),),
    )


@pytest.mark.req("LIF-10", "LIF-05", "DEC-11")
def test_parked_row_without_targets_has_the_error_of_the_failure() -> None:
    made = after(a_notification(), PermanentFailure("there is no list named 'ops'"))
    assert (made.status, made.last_error, made.targets) == (Status.PARKED, "there is no list named 'ops'", ())


def test_transient_failure_without_targets_is_retried() -> None:
    assert after(a_notification(), TransientFailure("busy")).status is Status.RETRYING
    assert after(a_notification(), Delivered()).status is Status.DELIVERED


@pytest.mark.parametrize("retry_after", [None, timedelta(0), MINUTE, 2 * MINUTE])
def test_shorter_requested_wait_does_not_shorten_that_of_the_policy(retry_after: timedelta | None) -> None:
    made = after(a_notification(Status.PENDING, A), TransientFailure("429", retry_after=retry_after))
    assert made.due_at == NOW + 2 * MINUTE


@pytest.mark.parametrize("kind", [TransientFailure, Uncertain])
def test_longer_requested_wait_is_honoured(kind: type[TransientFailure] | type[Uncertain]) -> None:
    made = after(a_notification(Status.PENDING, A), kind("429", retry_after=timedelta(hours=1)))
    assert made.next_attempt_at == made.due_at == NOW + timedelta(hours=1)


# Targets that fare differently

MIXED = fold((reached(A), due(B), failed(C)))


@pytest.mark.req("DEC-11")
def test_any_target_still_due_is_retried() -> None:
    made = after(a_notification(Status.PENDING, A, B, C), MIXED)
    assert (made.status, made.retry_count) == (Status.RETRYING, 0)
    assert made.targets == (reached(A), due(B), failed(C))
    assert made.last_error == "b@example.org: 450 later; c@example.org: 550 unknown"


@pytest.mark.req("DEC-11")
def test_once_none_is_due_a_failed_target_parks_and_is_named() -> None:
    n = a_notification(Status.RETRYING, reached(A), due(B), failed(C))
    made = after(n, Delivered((reached(B),)))
    assert (made.status, made.last_error) == (Status.PARKED, "c@example.org: 550 unknown")
    assert made.targets == (reached(B),), "those already settled are not written again"


@pytest.mark.req("DEC-11", "LIF-05")
def test_with_the_policy_used_up_a_target_still_due_fails_with_its_own_error() -> None:
    made = after(a_notification(Status.RETRYING, reached(A), B, C, retry_count=2), MIXED)
    assert made.status is Status.PARKED
    assert made.targets == (failed(B, "450 later"), failed(C))


@pytest.mark.req("DEC-11", "LIF-05")
@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (fold((due(A), due(B))), "2 targets (a@example.org, b@example.org): 450 later; c@example.org: 550 unknown"),
        (TransientFailure("421"), "2 targets (a@example.org, b@example.org): 421; c@example.org: 550 unknown"),
        (TransientFailure("421", (Target(A.address, DUE),)), "421; c@example.org: 550 unknown"),
        (Uncertain("no answer"), "no answer; c@example.org: 550 unknown"),
    ],
    ids=["each named", "none named", "named without an error", "uncertain"],
)
def test_with_the_policy_used_up_targets_that_failed_before_are_named_too(outcome: Outcome, error: str) -> None:
    made = after(a_notification(Status.RETRYING, A, B, failed(C), retry_count=2), outcome)
    assert (made.status, made.last_error) == (Status.PARKED, error)


def test_a_row_held_too_long_names_the_targets_that_failed_before() -> None:
    n = replace(a_notification(Status.RETRYING, A, failed(C)), cycle_started_at=NOW - timedelta(days=6))
    assert after(n, Held("refused")).last_error == (
        "held longer than 5 days, 0:00:00: refused; c@example.org: 550 unknown"
    )


@pytest.mark.req("DEC-11")
def test_all_targets_reached_over_several_attempts_is_delivered() -> None:
    n = a_notification(Status.RETRYING, reached(A), due(B))
    made = after(n, Delivered((reached(B),)))
    assert (made.status, made.targets) == (Status.DELIVERED, (reached(B),))


@pytest.mark.req("DEC-11")
@pytest.mark.parametrize("news", [failed(A), due(A)])
def test_reached_target_stays_reached_after_any_later_result(news: Target) -> None:
    n = a_notification(Status.RETRYING, reached(A), due(B))
    made = after(n, TransientFailure("451", (news, due(B, "451"))))
    assert made.targets == (due(B, "451"),)


@pytest.mark.req("DEC-11")
def test_a_target_that_the_notification_does_not_have_is_not_added() -> None:
    made = after(a_notification(Status.PENDING, A), Delivered((reached(A), reached(C))))
    assert made.targets == (reached(A),)


@pytest.mark.req("DEC-11")
def test_target_that_an_adapter_forgot_is_still_due() -> None:
    made = after(a_notification(Status.PENDING, A, B), Delivered((reached(A),)))
    assert (made.status, made.targets) == (Status.RETRYING, (reached(A),))
    assert made.last_error


# Uncertain


@pytest.mark.req("DEC-10")
def test_uncertain_parks_with_a_reason_if_the_list_says_so() -> None:
    policy = Policy(POLICY.retry, park_uncertain=True)
    made = after(a_notification(Status.PENDING, A), Uncertain("no answer to the dot"), policy)
    assert (made.status, made.retry_count) == (Status.PARKED, 0)
    assert str(made.last_error).startswith("no answer to the dot; it may have been delivered")
    assert [t.status for t in made.targets] == [FAILED]


@pytest.mark.req("DEC-10")
def test_only_uncertain_outcomes_park_by_that_option() -> None:
    policy = Policy(POLICY.retry, park_uncertain=True)
    assert after(a_notification(Status.PENDING, A), TransientFailure("451"), policy).status is Status.RETRYING


@pytest.mark.req("DEC-10")
@pytest.mark.parametrize(
    "outcome",
    [Uncertain("no answer"), Uncertain("no answer", (reached(A),)), PermanentFailure("a bug"), TransientFailure("451")],
    ids=["uncertain", "uncertain, named", "permanent", "transient"],
)
def test_once_all_targets_are_reached_no_end_of_the_attempt_parks(outcome: Outcome) -> None:
    """A parked row whose targets all have it would leave Retry nobody to send to."""
    policy = Policy(POLICY.retry, park_uncertain=True)
    n = a_notification(Status.PENDING, A, reached(B))
    made = decide(n, outcome, policy, HOLD, NOW, 0.0, reached={A.address: reached(A)})
    assert (made.status, made.targets) == (Status.DELIVERED, (reached(A),))


# Held


@pytest.mark.req("DEC-10")
@pytest.mark.parametrize("before", [Status.PENDING, Status.RETRYING])
def test_a_hold_changes_neither_status_nor_count_nor_next_attempt(before: Status) -> None:
    n = a_notification(before, A, reached(B), cycle=2)
    assert after(n, Held("connection refused")) == Transition(
        status=before,
        retry_count=n.retry_count,
        cycle=2,
        last_error=n.last_error,
        last_attempt_at=NOW,
        next_attempt_at=n.next_attempt_at,
        due_at=HOLD.until,
        held_by="channel:mail",
        held_reason="connection refused",
    )


def test_a_hold_keeps_the_results_of_targets_that_have_one() -> None:
    n = a_notification(Status.PENDING, A, B, C)
    made = after(n, Held("530 log in", targets=(reached(A), failed(B, "550 no"), due(C, "530 log in"))))
    assert (made.status, made.retry_count, made.held_by) == (Status.PENDING, 0, "channel:mail")
    assert made.targets == (reached(A), failed(B, "550 no"), due(C, "530 log in"))


def test_hold_with_a_result_for_every_target_does_not_hold() -> None:
    n = a_notification(Status.PENDING, A, B)
    assert after(n, Held("530 log in", targets=(reached(A), reached(B)))).status is Status.DELIVERED
    assert after(n, Held("530 log in", targets=(reached(A), failed(B, "550 no")))).status is Status.PARKED


@pytest.mark.req("DEC-10")
def test_only_a_row_held_past_its_maximum_age_parks() -> None:
    policy = Policy(POLICY.retry, hold_max=timedelta(days=5))
    young = a_notification(Status.PENDING, A, cycle_started_at=NOW - timedelta(days=5) + timedelta(microseconds=1))
    old = a_notification(Status.PENDING, A, cycle_started_at=NOW - timedelta(days=5))
    assert after(young, Held("refused"), policy).held_by == "channel:mail"
    made = after(old, Held("refused"), policy)
    assert (made.status, made.held_by) == (Status.PARKED, None)
    assert made.last_error == "held longer than 5 days, 0:00:00: refused"
    assert [t.status for t in made.targets] == [FAILED]


@pytest.mark.req("DEC-10")
def test_the_age_of_a_hold_counts_from_the_cycle_not_from_the_row() -> None:
    n = a_notification(Status.PENDING, A, created_at=NOW - timedelta(days=30), cycle=2, cycle_started_at=NOW - MINUTE)
    assert after(n, Held("refused")).status is Status.PENDING


# What operators do


@pytest.mark.req("DEC-11")
def test_parked_notification_returns_to_pending_on_retry_for_its_failed_targets_only() -> None:
    n = a_notification(Status.PARKED, reached(A), failed(B), failed(C), retry_count=3, last_attempt_at=NOW - MINUTE)
    assert lifecycle.retry(n, NOW) == Transition(
        status=Status.PENDING,
        retry_count=0,
        cycle=2,
        last_attempt_at=NOW - MINUTE,
        due_at=NOW,
        targets=(B, C),
    )


@pytest.mark.req("LIF-06")
def test_a_discarded_notification_keeps_its_record() -> None:
    n = a_notification(Status.PARKED, failed(A), retry_count=3, cycle=2, last_attempt_at=NOW - MINUTE)
    assert lifecycle.discard(n, NOW) == Transition(
        status=Status.DISCARDED,
        retry_count=3,
        cycle=2,
        last_error=n.last_error,
        last_attempt_at=NOW - MINUTE,
        terminal_at=NOW,
    )


@pytest.mark.req("LIF-06")
@pytest.mark.parametrize("rule", [lifecycle.retry, lifecycle.discard])
@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PARKED])
def test_only_a_parked_notification_can_be_retried_or_discarded(rule: Any, status: Status) -> None:
    with pytest.raises(Conflict) as caught:
        rule(a_notification(status), NOW)
    assert caught.value.code == "notification.not_parked"
    assert status.value in caught.value.message


@pytest.mark.req("TBL-07")
def test_forwarding_is_not_one_of_the_five_statuses() -> None:
    assert [s.value for s in Status] == ["pending", "retrying", "delivered", "parked", "discarded"]
    assert {Status.PENDING, Status.RETRYING} == LIVE
    assert [s for s in Status if s.is_terminal] == [Status.DELIVERED, Status.PARKED, Status.DISCARDED]


# Errors as they may be stored


@pytest.mark.parametrize(
    "outcome", [TransientFailure(""), PermanentFailure(""), Uncertain(""), PermanentFailure("", (failed(A, ""),))]
)
@pytest.mark.parametrize("retry_count", [0, 2])
def test_failure_without_a_reason_still_has_an_error(outcome: Outcome, retry_count: int) -> None:
    made = after(a_notification(Status.RETRYING, A, retry_count=retry_count), outcome)
    assert made.last_error
    assert all(t.error for t in made.targets if t.status is FAILED)


@pytest.mark.parametrize("text", ["x" * 100_000, "bad \x00 byte", "lone \udc80 surrogate"])
def test_error_is_truncated_to_what_both_stores_can_store(text: str) -> None:
    n = a_notification(Status.PENDING, A)
    for outcome in (TransientFailure(text), PermanentFailure(text, (failed(A, text),)), Held(text)):
        made = after(n, outcome)
        for kept in (made.last_error, made.held_reason, *(t.error for t in made.targets)):
            if kept is not None:
                assert len(kept.encode()) <= 2048
                assert "\x00" not in kept
