"""How free slots are shared between first attempts and retries."""

import pytest

from fieldpost.core.delivery.lanes import Lane, retry_first
from fieldpost.core.notification import Status


@pytest.mark.req("DEC-09")
@pytest.mark.parametrize(
    ("slots", "free", "retrying_now", "expected"),
    [
        (64, 64, 0, 16),
        (64, 64, 10, 6),
        (64, 64, 16, 0),
        (64, 64, 40, 0),
        (64, 5, 0, 5),
        (64, 0, 0, 0),
        (8, 8, 0, 2),
        (3, 3, 0, 1),
        (1, 1, 0, 1),
        (1, 1, 1, 0),
    ],
)
def test_the_retry_lane_owns_a_quarter_of_the_slots_and_at_least_one(
    slots: int, free: int, retrying_now: int, expected: int
) -> None:
    assert retry_first(slots, free, retrying_now) == expected


def test_a_rows_lane_follows_from_its_status() -> None:
    assert {lane: lane.status for lane in Lane} == {Lane.FRESH: Status.PENDING, Lane.RETRY: Status.RETRYING}
