"""What becomes of a buffered notification after central has answered."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.core.forwarding import (
    WAIT_MAX,
    Box,
    Clear,
    NotNow,
    Refused,
    Taken,
    TryAgain,
    answer_from,
    decide,
    is_due,
)
from fieldpost.core.message import Category, MessageStatus

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
INTERVAL = timedelta(seconds=10)


@pytest.mark.parametrize("verdict", ["accepted", "duplicate"])
def test_only_central_having_it_clears_a_notification(verdict: str) -> None:
    assert answer_from(verdict, None, None, None) == Taken()
    assert decide(Taken(), INTERVAL, NOW) == Clear()


def test_what_central_rejects_goes_to_the_box_with_its_code_and_error() -> None:
    answer = answer_from("rejected", "notification.conflict", "another one has this id", None)
    assert decide(answer, INTERVAL, NOW) == Box("notification.conflict", "another one has this id")


def test_a_rejection_without_a_reason_still_has_a_text() -> None:
    decision = decide(answer_from("rejected", None, None, None), INTERVAL, NOW)
    assert isinstance(decision, Box)
    assert decision.code
    assert decision.error


def test_what_central_does_not_take_now_is_due_again_after_the_interval() -> None:
    answer = answer_from("later", "store.full", "the disk is full", None)
    assert decide(answer, INTERVAL, NOW) == TryAgain(NOW + INTERVAL, "the disk is full")


@pytest.mark.parametrize(
    ("wait_s", "expected"),
    [
        (60.0, timedelta(seconds=60)),
        (3.0, INTERVAL),
        (1e12, WAIT_MAX),
        (-5.0, INTERVAL),
        (float("nan"), INTERVAL),
        (float("inf"), INTERVAL),
    ],
)
def test_a_wait_that_central_asks_for_is_kept_within_bounds(wait_s: float, expected: timedelta) -> None:
    assert decide(NotNow("busy", wait_s), INTERVAL, NOW) == TryAgain(NOW + expected, "busy")


def test_a_verdict_of_a_newer_central_keeps_the_notification() -> None:
    assert isinstance(answer_from("deferred", None, None, None), NotNow)


@pytest.mark.req("SF-08")
@pytest.mark.parametrize("answer", [Taken(), Refused("c", "e"), NotNow("e"), NotNow("e", 5)])
def test_no_answer_parks_a_notification(answer: Taken | Refused | NotNow) -> None:
    assert isinstance(decide(answer, INTERVAL, NOW), Clear | Box | TryAgain)
    assert not Category.NOTIFICATION.may_park


def test_there_are_exactly_three_categories() -> None:
    assert [category.value for category in Category] == ["notification", "external_call", "database_write"]


def test_a_buffered_message_is_pending_retrying_or_parked() -> None:
    assert [status.value for status in MessageStatus] == ["pending", "retrying", "parked"]


def test_a_message_is_due_at_its_time_and_not_before() -> None:
    assert is_due(None, NOW)
    assert is_due(NOW, NOW)
    assert not is_due(NOW + timedelta(microseconds=1), NOW)
    assert not is_due(NOW + WAIT_MAX, NOW)


def test_a_due_time_that_the_clock_has_jumped_away_from_does_not_strand_a_message() -> None:
    assert is_due(NOW + timedelta(days=3650), NOW)


def test_an_error_text_of_central_is_cut_to_what_may_be_stored() -> None:
    decision = decide(Refused("c" * 500, "x\x00" * 5000), INTERVAL, NOW)
    assert isinstance(decision, Box)
    assert len(decision.code.encode()) <= 128
    assert len(decision.error.encode()) <= 2048
    assert "\x00" not in decision.error
