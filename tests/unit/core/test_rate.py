"""Rates: no window of the period holds more deliveries than the rate allows, however they are asked for."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.rate import Rate, parse_rate, take
from fieldpost.core.errors import InvalidInput

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def test_a_rate_is_a_count_and_a_period() -> None:
    assert parse_rate("20/1m") == Rate(20, timedelta(minutes=1))
    assert parse_rate("1/30s") == Rate(1, timedelta(seconds=30))


@pytest.mark.parametrize("text", ["", "20", "20/m", "0/1m", "20/0m", "1/2d", "-1/1m", "20/1m ", "٢/1m", None, 20])
def test_invalid_rate_is_rejected(text: object) -> None:
    with pytest.raises(InvalidInput, match="rate must be COUNT/PERIOD such as 20/1m"):
        parse_rate(text)


@given(
    st.integers(1, 50),
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 20_000_000), st.integers(1, 30)), max_size=60),
)
def test_no_period_holds_more_than_the_count(count: int, seconds: int, asks: list[tuple[int, int]]) -> None:
    rate = Rate(count, timedelta(seconds=seconds))
    now, next_at, made = NOW, None, []
    for step, wanted in asks:
        now += timedelta(microseconds=step)
        grant = take(rate, next_at, wanted, now)
        next_at = grant.next_at
        made += [now] * grant.count
        assert grant.count == wanted or grant.wait_until > now
    for begin in made:
        assert sum(begin <= at < begin + rate.period for at in made) <= count


@given(st.integers(1, 50), st.integers(1, 100))
def test_the_wait_ends_when_the_next_delivery_may_start(count: int, seconds: int) -> None:
    rate = Rate(count, timedelta(seconds=seconds))
    grant = take(rate, None, 1000, NOW)
    assert grant.count == rate.burst
    assert take(rate, grant.next_at, 1, grant.wait_until - timedelta(milliseconds=1)).count == 0
    assert take(rate, grant.next_at, 1, grant.wait_until).count == 1
