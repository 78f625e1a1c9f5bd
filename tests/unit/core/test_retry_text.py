"""Retry policies as the text that a list or a channel holds."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.retry import Exponential, Fixed, RetryPolicy, Schedule, parse, to_text
from fieldpost.core.errors import InvalidInput

waits = st.integers(1, 86_400 * 300).map(lambda seconds: timedelta(seconds=seconds))
attempts = st.integers(1, 1000)
jitters = st.sampled_from([0.0, 0.1, 0.25, 1.0])
policies = st.one_of(
    st.builds(Fixed, waits, attempts, jitters),
    st.builds(Schedule, st.sets(waits, max_size=8).map(lambda found: tuple(sorted(found))), jitters),
    st.builds(Exponential, waits, attempts, st.sampled_from([1.0, 1.5, 2.0, 10.0]), waits, jitters),
)


@given(policies)
def test_policy_text_round_trip(policy: RetryPolicy) -> None:
    assert parse(to_text(policy)) == policy


@pytest.mark.req("DEC-19")
@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("fixed:60s:10", Fixed(timedelta(seconds=60), 10)),
        ("fixed:1.5s:2~0.2", Fixed(timedelta(seconds=1.5), 2, 0.2)),
        ("schedule:15m,30m,1h,4h,1d", Schedule(tuple(timedelta(minutes=m) for m in (15, 30, 60, 240, 1440)))),
        ("oneground", Schedule(tuple(timedelta(minutes=m) for m in (15, 30, 60, 240, 1440)))),
        ("open-notificaties", Exponential(timedelta(seconds=25), 8, 4.0, timedelta(seconds=52_000))),
        ("schedule:", Schedule(())),
        ("exponential:30s:8", Exponential(timedelta(seconds=30), 8, 2.0, timedelta(hours=1))),
        ("exponential:30s:8:3:2h", Exponential(timedelta(seconds=30), 8, 3.0, timedelta(hours=2))),
    ],
)
def test_each_kind_of_policy_has_a_text(text: str, policy: RetryPolicy) -> None:
    assert parse(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fixed",
        "fixed:60s",
        "fixed:60:10",
        "fixed:0s:10",
        "fixed:-1s:10",
        "fixed:nans:10",
        "fixed:1e9s:1",
        "fixed:400d:2",
        "fixed:60s:0",
        "fixed:60s:1001",
        "fixed:60s:٣",
        "fixed:60s:10:1",
        "fixed:60s:10~2",
        "fixed:60s:10~",
        "schedule:30m,15m",
        "schedule:15m,15m",
        "exponential:30s:8:0.5",
        "exponential:30s:8:2:1h:1",
        "daily",
        "fixed:" + "6" * 600 + "s:1",
        60,
        None,
        ["fixed:60s:10"],
    ],
)
def test_invalid_policy_is_rejected_naming_the_field(text: object) -> None:
    with pytest.raises(InvalidInput, match="retry") as refused:
        parse(text)
    assert refused.value.field == "retry"
