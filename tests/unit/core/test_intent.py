"""The life of an intent."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fieldpost.core.errors import Conflict
from fieldpost.core.sites.intent import Intent, IntentKind, IntentState, check_cancel, expiry_detail, takes_result
from support.sample import NOW

WAITING = Intent(
    intent_id="019a8b3c-0000-7000-8000-000000000001",
    site="plant-7",
    kind=IntentKind.RETRY,
    message_id="019a8b3c-0000-7000-8000-000000000002",
    arguments={},
    reason=None,
    actor="operator",
    created_at=NOW,
    expires_at=NOW + timedelta(days=7),
)


@pytest.mark.req("DEC-27")
@pytest.mark.parametrize("state", [state for state in IntentState if state is not IntentState.WAITING])
def test_only_a_waiting_intent_can_be_cancelled(state: IntentState) -> None:
    check_cancel(WAITING)
    with pytest.raises(Conflict) as raised:
        check_cancel(replace(WAITING, state=state))
    assert raised.value.code == "intent.not_waiting"


@pytest.mark.parametrize(
    ("state", "attempts", "is_news"),
    [
        (IntentState.SENT, 1, True),
        (IntentState.EXPIRED, 1, True),
        (IntentState.EXPIRED, 0, False),
        (IntentState.WAITING, 0, False),
        (IntentState.CANCELLED, 0, False),
        (IntentState.DONE, 1, False),
    ],
)
def test_result_of_a_site_counts_for_sent_and_unsettled_intents(
    state: IntentState, attempts: int, is_news: bool
) -> None:
    assert takes_result(replace(WAITING, state=state, attempts=attempts)) is is_news


def test_expired_intent_states_whether_it_may_have_been_applied() -> None:
    assert "never sent" in expiry_detail(0)
    assert "may have been applied" in expiry_detail(2)


def test_queries_and_reconciliation_name_no_message() -> None:
    unnamed = {kind for kind in IntentKind if not kind.names_message}
    looks = {IntentKind.LIST_PARKED, IntentKind.LIST_REJECTED, IntentKind.QUERY_EVENTS}
    assert unnamed == looks | {IntentKind.RECONCILE}
