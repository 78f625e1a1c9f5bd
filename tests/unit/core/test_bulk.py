"""The rules of bulk actions: what they are about, and when a retry in stages goes on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, Judgement, Tried, judge, parked_only
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
BUSY = fingerprint_key("451 server 7 is busy")


def an_act(**more: Any) -> BulkAction:
    given = {"verb": BulkVerb.RETRY, "actor": "olga", "reason": "mended", "wanted": {}, "as_of": NOW, "created_at": NOW}
    return BulkAction(**{"action_id": "019a8b3c-0000-7000-8000-000000000001", "in_stages": True, **given, **more})


@pytest.mark.parametrize(("stage", "end"), [(0, 1), (1, 11), (2, 500), (3, 500)])
def test_stages_end_after_one_after_ten_more_and_after_all_rows(stage: int, end: int) -> None:
    assert an_act(stage=stage, total=500).stage_end == end
    assert an_act(stage=stage, total=500, in_stages=False).stage_end == 500
    assert an_act(stage=stage, total=1).stage_end == 1


def test_rows_are_counted_by_outcome() -> None:
    act = an_act(total=9, done=3, conflicts=2, gone=1)
    assert (act.settled, act.refused) == (6, 3)


@pytest.mark.parametrize("status", [Status.PARKED, Status.RETRYING])
def test_same_error_with_other_numbers_halts(status: Status) -> None:
    others = [Tried(BUSY, Status.DELIVERED, None), Tried(BUSY, Status.PENDING, None)]
    judged = judge([*others, Tried(None, status, "451 server 12 is busy")])
    assert judged == (Judgement.HALT, "451 server 12 is busy")


def test_stage_waits_for_rows_in_flight() -> None:
    assert judge([Tried(BUSY, Status.DELIVERED, None), Tried(BUSY, Status.PENDING, None)])[0] is Judgement.WAIT
    assert judge([Tried(BUSY, Status.RETRYING, "another error")])[0] is Judgement.WAIT


def test_stage_with_another_result_lets_the_next_begin() -> None:
    came_out = [Tried(BUSY, Status.DELIVERED, "451 server 7 is busy"), Tried(BUSY, Status.PARKED, "550 no such user")]
    assert judge(came_out) == (Judgement.GO_ON, None)
    assert judge([]) == (Judgement.GO_ON, None), "all were refused"


def test_only_gathering_and_running_actions_continue() -> None:
    assert [s for s in BulkStatus if not s.has_ended] == [BulkStatus.GATHERING, BulkStatus.RUNNING]


def test_bulk_action_selects_parked_notifications_only() -> None:
    assert parked_only(Filter(site="plant-7")) == Filter(site="plant-7", statuses=(Status.PARKED,))
    assert parked_only(Filter(statuses=(Status.PARKED,))) == Filter(statuses=(Status.PARKED,))
    for wanted in (Filter(is_stuck=True), Filter(is_overdue=True), Filter(statuses=(Status.PARKED, Status.RETRYING))):
        with pytest.raises(InvalidInput):
            parked_only(wanted)


def test_remaining_time_follows_from_the_pace_so_far() -> None:
    act = an_act(status=BulkStatus.RUNNING, in_stages=False, total=100, done=20, conflicts=5)
    later = act.created_at + timedelta(seconds=10)
    assert act.left == 75
    assert act.remaining(later) == timedelta(seconds=30)


@pytest.mark.parametrize(
    "changes", [{"status": BulkStatus.GATHERING}, {"in_stages": True}, {"done": 0}, {"status": BulkStatus.HALTED}]
)
def test_remaining_time_is_unknown_without_a_pace(changes: dict[str, Any]) -> None:
    act = an_act(**{"status": BulkStatus.RUNNING, "in_stages": False, "total": 100, "done": 20} | changes)
    assert act.remaining(act.created_at + timedelta(seconds=10)) is None
