"""What becomes of a buffered notification after central has answered."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.core.sites.forwarding import (
    CALL_WAIT_MAX,
    WAIT_MAX,
    Box,
    CallDecision,
    CallPolicy,
    CarrierAnswer,
    Clear,
    Fail,
    NotNow,
    Park,
    Refused,
    Taken,
    TryAgain,
    answer_from,
    decide,
    decide_call,
    is_due,
)
from fieldpost.core.sites.message import Category, MessageStatus

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
INTERVAL = timedelta(seconds=10)


@pytest.mark.parametrize("verdict", ["accepted", "duplicate"])
def test_acceptance_by_central_clears_a_notification(verdict: str) -> None:
    assert answer_from(verdict, None, None, None) == Taken()
    assert decide(Taken(), INTERVAL, NOW) == Clear()


def test_rejected_notification_goes_to_the_box_with_code_and_error() -> None:
    answer = answer_from("rejected", "notification.conflict", "another one has this id", None)
    assert decide(answer, INTERVAL, NOW) == Box("notification.conflict", "another one has this id")


def test_a_rejection_without_a_reason_still_has_a_text() -> None:
    decision = decide(answer_from("rejected", None, None, None), INTERVAL, NOW)
    assert isinstance(decision, Box)
    assert decision.code
    assert decision.error


def test_deferred_notification_is_due_again_after_the_interval() -> None:
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
def test_wait_requested_by_central_is_honoured_within_limits(wait_s: float, expected: timedelta) -> None:
    assert decide(NotNow("busy", wait_s), INTERVAL, NOW) == TryAgain(NOW + expected, "busy")


def test_a_verdict_of_a_newer_central_keeps_the_notification() -> None:
    assert isinstance(answer_from("deferred", None, None, None), NotNow)


@pytest.mark.req("SF-08")
@pytest.mark.parametrize("answer", [Taken(), Refused("c", "e"), NotNow("e"), NotNow("e", 5)])
def test_notification_is_never_parked_by_an_answer(answer: Taken | Refused | NotNow) -> None:
    assert isinstance(decide(answer, INTERVAL, NOW), Clear | Box | TryAgain)


def test_there_are_exactly_three_categories() -> None:
    assert [category.value for category in Category] == ["notification", "external_call", "database_write"]


def test_a_buffered_message_is_pending_retrying_or_parked() -> None:
    assert [status.value for status in MessageStatus] == ["pending", "retrying", "parked"]


def test_a_message_is_due_at_its_time_and_not_before() -> None:
    assert is_due(None, NOW)
    assert is_due(NOW, NOW)
    assert not is_due(NOW + timedelta(microseconds=1), NOW)
    assert not is_due(NOW + WAIT_MAX, NOW)


def test_clock_jump_does_not_strand_a_message() -> None:
    assert is_due(NOW + timedelta(days=3650), NOW)


def test_error_of_central_is_truncated_to_the_storable_length() -> None:
    decision = decide(Refused("c" * 500, "x\x00" * 5000), INTERVAL, NOW)
    assert isinstance(decision, Box)
    assert len(decision.code.encode()) <= 128
    assert len(decision.error.encode()) <= 2048
    assert "\x00" not in decision.error


POLICY = CallPolicy(timedelta(seconds=60), 3)


def call(answer: CarrierAnswer, *, count: int = 0, first: bool = False, caller: bool = False) -> CallDecision:
    return decide_call(answer, POLICY, NOW, retry_count=count, is_first=first, is_caller=caller)


@pytest.mark.req("SF-03", "TRK-06")
@pytest.mark.parametrize("caller", [True, False])
def test_accepted_call_is_cleared_for_caller_and_agent(caller: bool) -> None:
    assert call(Taken(201), caller=caller, first=caller) == Clear(201)


@pytest.mark.req("API-08", "TRK-08")
def test_refused_call_fails_while_its_caller_waits_and_parks_otherwise() -> None:
    refused = Refused("external.refused", "no such part", 404)
    assert call(refused, first=True, caller=True) == Fail("external.refused", "no such part", 404)
    assert call(refused, count=1) == Park("no such part", True, 404)
    assert call(refused, first=True) == Park("no such part", False, 404)


@pytest.mark.req("SF-06", "SF-12", "RES-37")
def test_first_attempt_does_not_count_toward_the_retries_of_the_definition() -> None:
    due = NOW + POLICY.interval
    assert call(NotNow("away"), first=True, caller=True) == TryAgain(due, "away", is_counted=False)
    assert call(NotNow("away"), count=0) == TryAgain(due, "away")
    assert call(NotNow("away"), count=1) == TryAgain(due, "away")
    assert call(NotNow("away", http_status=503), count=2) == Park("away", http_status=503)


@pytest.mark.req("RES-37")
@pytest.mark.parametrize("count", [0, 3, 1_000_000])
def test_no_limit_of_retries_never_parks(count: int) -> None:
    decision = decide_call(
        NotNow("away"), CallPolicy(POLICY.interval, 0), NOW, retry_count=count, is_first=False, is_caller=False
    )
    assert isinstance(decision, TryAgain)


@pytest.mark.parametrize(
    ("wait_s", "expected"),
    [(7_200.0, timedelta(hours=2)), (3.0, POLICY.interval), (1e12, CALL_WAIT_MAX), (float("nan"), POLICY.interval)],
)
def test_wait_requested_by_the_target_is_honoured_for_up_to_a_day(wait_s: float, expected: timedelta) -> None:
    decision = call(NotNow("busy", wait_s))
    assert isinstance(decision, TryAgain)
    assert decision.due_at == NOW + expected
    assert not is_due(decision.due_at, NOW, CALL_WAIT_MAX)


def test_overlong_error_is_truncated() -> None:
    decision = call(Refused("c" * 999, "e" * 99_999), caller=True, first=True)
    assert isinstance(decision, Fail)
    assert (len(decision.code.encode()), len(decision.error.encode())) == (128, 2048)
