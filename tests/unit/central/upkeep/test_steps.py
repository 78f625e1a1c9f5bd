"""How large the steps of upkeep are: batches of a purge, intervals of samples."""

from datetime import UTC, datetime, timedelta

import pytest

from fieldpost.central.upkeep.purge import BATCH_MIN, BATCH_S, next_limit
from fieldpost.central.upkeep.sampler import begin_of


def test_a_slow_batch_makes_the_next_one_half_as_large() -> None:
    assert next_limit(500, BATCH_S * 1.01, 500) == 250


def test_batches_never_shrink_below_a_minimum() -> None:
    limit = 500
    for _ in range(20):
        limit = next_limit(limit, 10.0, 500)
    assert limit == BATCH_MIN
    assert next_limit(3, 10.0, 3) == 3


def test_quick_batches_grow_back_to_what_the_setting_allows() -> None:
    limit = BATCH_MIN
    for _ in range(20):
        limit = next_limit(limit, BATCH_S / 10, 500)
    assert limit == 500


def test_a_batch_of_middling_length_keeps_its_size() -> None:
    assert next_limit(100, BATCH_S / 2, 500) == 100


@pytest.mark.parametrize("second", [0, 1, 59.999999])
def test_time_is_rounded_down_to_the_minute(second: float) -> None:
    begin = datetime(2026, 11, 15, 9, 41, tzinfo=UTC)
    assert begin_of(begin + timedelta(seconds=second), timedelta(minutes=1)) == begin
