"""Outcomes, and the rule that folds results per target into one."""

import pytest

from fieldpost.core.delivery.outcome import (
    WORDS,
    Delivered,
    Outcome,
    PermanentFailure,
    TransientFailure,
    fold,
    name_errors,
)
from fieldpost.core.notification import Target
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
        ((B, C), TransientFailure("b@example.org: 450 later", (B, C))),
        ((A, B, C), TransientFailure("b@example.org: 450 later", (A, B, C))),
        ((C,), PermanentFailure("c@example.org: 550 unknown", (C,))),
    ],
    ids=["none", "reached", "due", "failed", "due beside failed", "all three", "only failed"],
)
def test_any_due_means_again_else_any_failed_means_never_else_delivered(
    targets: tuple[Target, ...], expected: Outcome
) -> None:
    assert fold(targets) == expected


@pytest.mark.parametrize("target", [A, B, C])
def test_a_fold_keeps_reply_and_phase(target: Target) -> None:
    folded = fold((target,), "250 2.0.0 ok", "dot")
    assert (folded.reply, folded.phase) == ("250 2.0.0 ok", "dot")


@pytest.mark.req("DEC-10")
def test_there_are_five_outcomes_with_these_words() -> None:
    assert WORDS == ("delivered", "transient_failure", "permanent_failure", "uncertain", "held")


def test_errors_are_named_by_target_and_those_without_text_by_address_alone() -> None:
    bare = Target("d@example.org", FAILED)
    assert name_errors((A, B, C, bare), FAILED) == "c@example.org: 550 unknown; d@example.org"


def test_of_many_errors_ten_are_named_and_the_rest_counted() -> None:
    many = tuple(Target(f"t{number:02}", FAILED) for number in range(12))
    assert name_errors(many[:10], FAILED) == "; ".join(f"t{number:02}" for number in range(10))
    assert name_errors(many, FAILED).endswith("t09 and 2 more")
    assert "t10" not in name_errors(many, FAILED)
