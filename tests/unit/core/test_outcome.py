"""Outcomes, and the rule that folds results per target into one."""

from datetime import timedelta

import pytest

from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import (
    WORDS,
    Delivered,
    Evidence,
    Held,
    Outcome,
    Pause,
    PermanentFailure,
    TransientFailure,
    fold,
    name_errors,
)
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.text import ERROR_BYTES_MAX
from support.sample import DUE, FAILED, REACHED

A = Target("a@example.org", REACHED)
B = Target("b@example.org", DUE, "450 later")
C = Target("c@example.org", FAILED, "550 unknown")


@pytest.mark.req("DEC-11")
@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ((), Delivered()),
        ((A,), Delivered((A,))),
        ((A, B), TransientFailure("b@example.org: 450 later", (A, B))),
        ((A, C), PermanentFailure("c@example.org: 550 unknown", (A, C))),
        ((B, C), TransientFailure("b@example.org: 450 later; c@example.org: 550 unknown", (B, C))),
        ((A, B, C), TransientFailure("b@example.org: 450 later; c@example.org: 550 unknown", (A, B, C))),
        ((C,), PermanentFailure("c@example.org: 550 unknown", (C,))),
    ],
    ids=["none", "reached", "due", "failed", "due beside failed", "all three", "only failed"],
)
def test_due_target_means_transient_else_failed_target_means_permanent_else_delivered(
    targets: tuple[Target, ...], expected: Outcome
) -> None:
    assert fold(targets) == expected


@pytest.mark.parametrize("target", [A, B, C])
def test_a_fold_keeps_reply_and_phase(target: Target) -> None:
    folded = fold((target,), "250 2.0.0 ok", "dot")
    assert (folded.reply, folded.phase) == ("250 2.0.0 ok", "dot")


@pytest.mark.req("DEC-10")
def test_names_of_the_five_outcomes() -> None:
    assert WORDS == ("delivered", "transient_failure", "permanent_failure", "uncertain", "held")


def test_errors_are_named_by_target_and_those_without_text_by_address_alone() -> None:
    bare = Target("d@example.org", FAILED)
    assert name_errors((A, B, C, bare), FAILED) == "c@example.org: 550 unknown; d@example.org"


def test_each_error_is_named_once_with_its_number_of_targets_and_the_first_ten() -> None:
    many = tuple(Target(f"t{number:02}", FAILED, "550 unknown") for number in range(12))
    assert name_errors(many[:2], FAILED) == "2 targets (t00, t01): 550 unknown"
    assert name_errors(many[:10], FAILED).startswith("10 targets (t00, t01, ")
    named = name_errors((*many, B), FAILED, DUE)
    assert named.startswith("12 targets (t00, t01, ")
    assert named.endswith(", t09 and 2 more): 550 unknown; b@example.org: 450 later")


def test_replies_that_differ_only_in_their_target_are_one_reply() -> None:
    targets = tuple(Target(f"{name}@x.example", FAILED, f"550 5.1.1 <{name}@x.example>: rejected") for name in "ab")
    assert name_errors(targets, FAILED) == "2 targets (a@x.example, b@x.example): 550 5.1.1 <a@x.example>: rejected"


def test_every_error_stays_when_a_text_with_ten_targets_each_would_be_too_long() -> None:
    targets = tuple(Target(f"{'x' * 60}{number}@plant.example", FAILED, f"55{number % 8} no") for number in range(400))
    named = name_errors(targets, FAILED)
    assert len(named) <= ERROR_BYTES_MAX
    assert [f": 55{number} no" in named for number in range(8)] == [True] * 8
    assert named.count("50 targets") == 8


@pytest.mark.req("CHN-02")
def test_targets_that_only_pause_hold_until_the_first_pause_ends() -> None:
    targets = (Target("a", TargetStatus.DELIVERED), Target("b", error="429"), Target("c", error="429"))
    pauses = (Pause(timedelta(seconds=30), "429 b", "b"), Pause(timedelta(seconds=9), "429 c", "c"))
    outcome = fold(targets, pauses=pauses)
    assert isinstance(outcome, Held)
    assert (outcome.kind, outcome.wait, outcome.evidence) == (
        HoldKind.RATE_LIMIT,
        timedelta(seconds=9),
        Evidence.WORKS,
    )
    assert outcome.targets == targets
    assert fold(targets[1:], pauses=pauses).evidence is Evidence.NONE


@pytest.mark.req("CHN-02")
def test_target_that_failed_next_to_a_paused_one_is_a_transient_failure() -> None:
    outcome = fold((Target("a", error="503"), Target("b", error="429")), pauses=(Pause(timedelta(1), "429", "b"),))
    assert isinstance(outcome, TransientFailure)
    assert outcome.pauses
    over_channel = fold((Target("a", error="429"), Target("b", error="429")), pauses=(Pause(timedelta(3), "429"),))
    assert isinstance(over_channel, Held)
    assert over_channel.wait == timedelta(hours=24)
