"""The forecast of a turn against a play of the queues, row by row."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.rate import Rate, parse_rate, spare, spend, turn
from fieldpost.core.delivery.turn_forecast import RowsAhead, forecast_turn

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
Crowd = list[tuple[Rate | None, int, int, int]]
"""Per list: its rate, how many rows it has, when the first is due and how far apart the others are, in seconds."""


def due_times(crowd: Crowd) -> list[list[datetime]]:
    return [[NOW - timedelta(seconds=9999 - head - n * gap) for n in range(count)] for _, count, head, gap in crowd]


def play(crowd: Crowd, channel: Rate) -> list[list[datetime]]:
    """The turns of the rows of each list."""
    due = due_times(crowd)
    states: dict[int, datetime | None] = dict.fromkeys(range(-1, len(crowd)))
    turns: list[list[datetime]] = [[] for _ in crowd]
    now = NOW
    while left := [number for number, times in enumerate(due) if len(turns[number]) < len(times)]:
        own = {number: rate for number in left if (rate := crowd[number][0]) is not None}
        ready = [number for number in left if number not in own or spare(own[number], states[number], now)]
        if ready and spare(channel, states[-1], now):
            first = min(ready, key=lambda number: (due[number][len(turns[number])], number))
            turns[first].append(now)
            states[-1] = spend(channel, states[-1], 1, now)
            if first in own:
                states[first] = spend(own[first], states[first], 1, now)
        else:
            at = turn(channel, states[-1], 0, now)
            now = at if ready else max(at, min(turn(rate, states[number], 0, now) for number, rate in own.items()))
    return turns


def forecast(crowd: Crowd, number: int, channel: Rate) -> datetime:
    """The forecast for the last row of a list, from what the store knows."""
    due = due_times(crowd)
    place = (due[number][-1], number, len(due[number]) - 1)
    ahead = []
    for other, times in enumerate(due):
        before = [one for at, one in enumerate(times) if (one, other, at) < place]
        if before:
            ahead.append(RowsAhead(str(other), False, before[0], before[-1], len(before)))
    rates = {str(other): (rate, None) for other, (rate, *_) in enumerate(crowd) if rate is not None}
    return forecast_turn(str(number), ahead, rates, (channel, None), NOW)


@pytest.mark.req("CHN-03")
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, parse_rate("20/1m"), parse_rate("1/1s")]),
            st.integers(1, 40),
            st.integers(0, 60),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from([parse_rate("2/1s"), parse_rate("25/1s"), parse_rate("60/1m")]),
)
def test_forecast_equals_the_turn_of_the_row(crowd: Crowd, channel: Rate) -> None:
    turns = play(crowd, channel)
    for number in range(len(crowd)):
        real = turns[number][-1]
        assert abs(real - forecast(crowd, number, channel)) <= max((real - NOW) / 10, timedelta(seconds=5))


@pytest.mark.req("CHN-03")
@pytest.mark.parametrize(
    ("count", "rate"), [(1000, None), (300, parse_rate("20/1m")), (30_000, None)], ids=["free", "slow", "many"]
)
def test_the_rows_of_other_lists_count_as_far_as_their_rates_let_them_pass(count: int, rate: Rate | None) -> None:
    channel = parse_rate("60/1m")
    crowd: Crowd = [(rate, count, 0, 0), (parse_rate("20/1m"), 20, 1, 0)]
    real = play(crowd, channel)[1][-1]
    assert abs(forecast(crowd, 1, channel) - real) <= (real - NOW) / 50


def test_critical_rows_of_other_lists_go_first_although_they_are_due_later() -> None:
    channel = parse_rate("1/1s"), None
    ahead = [RowsAhead("b", True, NOW, NOW, 60)]
    assert forecast_turn("a", ahead, {}, channel, NOW) == NOW + timedelta(seconds=60)
    assert forecast_turn("a", [], {}, channel, NOW) == NOW
