"""Retry policies: when the next attempt is due, and when to stop."""

from datetime import timedelta

import pytest

from fieldpost.core.delivery.retry import Exponential, Fixed, RetryPolicy, Schedule, fixed_from_settings, parse, to_text
from fieldpost.core.errors import InvalidInput

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def delays(policy: RetryPolicy, chance: float = 0.0) -> list[timedelta]:
    """The delays after each failure, until the policy is used up."""
    found = []
    while (delay := policy.delay(len(found) + 1, chance)) is not None:
        found.append(delay)
    return found


@pytest.mark.req("DEC-19", "RTY-02")
def test_fixed_waits_the_same_each_time_and_counts_attempts_in_total() -> None:
    assert delays(Fixed(MINUTE, attempts_max=4)) == [MINUTE] * 3
    assert delays(Fixed(MINUTE, attempts_max=1)) == []


@pytest.mark.req("DEC-19")
def test_schedule_has_one_delay_per_failure_in_order() -> None:
    waits = (15 * SECOND, 30 * SECOND, MINUTE)
    assert delays(Schedule(waits)) == list(waits)
    assert delays(Schedule(())) == [], "an empty schedule means no retry"


@pytest.mark.req("DEC-19")
def test_exponential_multiplies_up_to_its_longest_wait() -> None:
    policy = Exponential(SECOND, attempts_max=7, factor=3, wait_max=30 * SECOND)
    assert [d.total_seconds() for d in delays(policy)] == [1, 3, 9, 27, 30, 30]


def test_exponential_does_not_overflow_however_many_attempts() -> None:
    assert Exponential(SECOND, attempts_max=10**9).delay(10**8, 0.0) == timedelta(hours=1)


def test_exponential_does_not_overflow_by_a_huge_factor() -> None:
    assert Exponential(SECOND, attempts_max=9, factor=1e300).delay(8, 0.0) == timedelta(hours=1)


def test_a_first_wait_above_the_longest_is_the_longest() -> None:
    assert Exponential(2 * MINUTE, attempts_max=3, wait_max=MINUTE).delay(1, 0.0) == MINUTE


@pytest.mark.req("DEC-19")
@pytest.mark.parametrize(
    "policy",
    [
        Fixed(MINUTE, 5, jitter=0.5),
        Schedule((MINUTE, MINUTE), jitter=0.5),
        Exponential(MINUTE, 5, jitter=0.5),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_jitter_only_adds(policy: RetryPolicy) -> None:
    assert policy.delay(1, 0.0) == MINUTE
    assert policy.delay(1, 0.5) == 75 * SECOND
    assert policy.delay(1, 1.0) == 90 * SECOND


def test_without_jitter_chance_changes_nothing() -> None:
    assert delays(Fixed(MINUTE, 3), chance=0.999) == [MINUTE, MINUTE]


# A channel's settings, as they stand in its row


@pytest.mark.req("RTY-01")
def test_good_settings_are_taken_as_they_are() -> None:
    assert fixed_from_settings(3, 2.5) == (Fixed(timedelta(seconds=2.5), 3), [])
    assert fixed_from_settings(1, 1) == (Fixed(SECOND, 1), [])


@pytest.mark.req("RTY-03", "RTY-05")
@pytest.mark.bad_input(26)
@pytest.mark.parametrize("bad", [0, -1, None, "3", 2.5, float("nan"), True, [], {}])
def test_a_bad_number_of_attempts_becomes_ten_and_is_named(bad: object) -> None:
    assert fixed_from_settings(bad, 60) == (Fixed(MINUTE, 10), ["max_retries"])


@pytest.mark.req("RTY-04", "RTY-05")
@pytest.mark.bad_input(26)
@pytest.mark.parametrize(
    "bad", [0, -1, -0.0, None, "5m", float("nan"), float("inf"), float("-inf"), 1e300, 10**400, 1e-9, True, []]
)
def test_a_bad_delay_becomes_a_minute_and_is_named(bad: object) -> None:
    assert fixed_from_settings(3, bad) == (Fixed(MINUTE, 3), ["retry_delay_s"])


def test_both_bad_are_both_named() -> None:
    assert fixed_from_settings(None, None) == (Fixed(MINUTE, 10), ["max_retries", "retry_delay_s"])


@pytest.mark.parametrize("text", ["schedule:" + ",".join(f"{day}d" for day in range(1, 52)), "fixed:1s:2" + " " * 1000])
def test_a_policy_that_could_not_be_read_back_once_stored_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    assert caught.value.field == "retry"


def test_the_longest_schedule_is_read_back_from_what_is_stored() -> None:
    policy = parse("schedule:" + ",".join(f"{day}d" for day in range(1, 51)))
    assert parse(to_text(policy)) == policy
