"""What is told of one cached call."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.watch.cached_calls import CallDetail
from fieldpost.central.watch.call_story import story, summary
from fieldpost.core.sites.call_mirror import CachedCall
from fieldpost.core.sites.intent import Intent, IntentKind, IntentOutcome, IntentState
from fieldpost.core.sites.message import CallReport, CallStatus, Category

NOW = datetime(2026, 11, 15, 3, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def call(status: CallStatus, *, retry_count: int = 0, gone_at: datetime | None = None) -> CachedCall:
    report = CallReport(
        call_id="019a8b3c-0000-7000-8000-000000000001",
        category=Category.EXTERNAL_CALL,
        target_summary="erp POST /orders",
        status=status,
        retry_count=retry_count,
        last_error="503",
        http_status=503,
        instance="gate",
        script="orders.py",
        execution_id=None,
        parent_execution_id=None,
        created_at=None,
        updated_at=None,
        terminal_at=None,
        version=1,
    )
    return CachedCall(
        site="plant-7",
        report=report,
        first_seen_at=NOW - 8 * MINUTE,
        received_at=NOW - MINUTE,
        begun_at=NOW - 10 * MINUTE,
        ended_at=None,
        gone_at=gone_at,
    )


def detail(one: CachedCall, *intents: Intent, is_stuck: bool = False) -> CallDetail:
    return CallDetail(one, intents, None, is_stuck, NOW)


@pytest.mark.parametrize("status", CallStatus)
def test_every_status_of_a_call_has_a_summary(status: CallStatus) -> None:
    assert summary(detail(call(status))).endswith(".")


def test_summary_names_possible_actions_and_stuck_calls() -> None:
    assert "after 1 retry. Retry or discard it" in summary(detail(call(CallStatus.PARKED, retry_count=1)))
    assert "after its first attempt" in summary(detail(call(CallStatus.PARKED)))
    assert "It is stuck" in summary(detail(call(CallStatus.RETRYING), is_stuck=True))
    assert "no longer has" in summary(detail(call(CallStatus.PARKED, gone_at=NOW)))


@pytest.mark.parametrize(
    ("state", "outcome", "words", "tone"),
    [
        (IntentState.DONE, IntentOutcome.APPLIED, "Retry: applied by the site", "good"),
        (IntentState.DONE, IntentOutcome.NOT_PARKED, "Retry: the call was no longer parked", "bad"),
        (IntentState.DONE, IntentOutcome.OPERATION_FAILED, "Retry: failed at the site", "bad"),
        (IntentState.EXPIRED, IntentOutcome.SITE_UNREACHABLE, "Retry: expired", "bad"),
        (IntentState.CANCELLED, None, "Retry: cancelled", "plain"),
    ],
)
def test_timeline_has_requests_and_results_in_order(
    state: IntentState, outcome: IntentOutcome | None, words: str, tone: str
) -> None:
    intent = Intent(
        intent_id="019a8b3c-0000-7000-8000-000000000002",
        site="plant-7",
        kind=IntentKind.RETRY,
        message_id="019a8b3c-0000-7000-8000-000000000001",
        arguments={},
        reason="erp is back",
        actor="kim",
        created_at=NOW - 5 * MINUTE,
        expires_at=NOW + MINUTE,
        state=state,
        outcome=outcome,
        done_at=NOW - 4 * MINUTE,
    )
    steps = story(detail(call(CallStatus.PARKED, gone_at=NOW), intent))
    assert [step.title for step in steps] == [
        "Issued by a script",
        "Retry requested",
        words,
        "Parked, as last reported by the site",
        "The site no longer has this call",
    ]
    assert steps[0].note == "reported to central 2 min later"
    assert (steps[1].note, steps[2].tone.value, steps[3].error) == ("erp is back", tone, "503")
