"""Retry policies: when the next attempt is due, and when to stop."""

from datetime import timedelta

import pytest

from fieldpost.core.delivery.retry import (
    Exponential,
    Fixed,
    RetryPolicy,
    Schedule,
    check_fixed,
    fixed_from_settings,
    parse,
    to_text,
)
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
def test_fixed_policy_waits_the_same_each_time_and_counts_attempts_in_total() -> None:
    assert delays(Fixed(MINUTE, attempts_max=4)) == [MINUTE] * 3
    assert delays(Fixed(MINUTE, attempts_max=1)) == []


@pytest.mark.req("DEC-19")
def test_schedule_policy_has_one_delay_per_failure_in_order() -> None:
    waits = (15 * SECOND, 30 * SECOND, MINUTE)
    assert delays(Schedule(waits)) == list(waits)
    assert delays(Schedule(())) == [], "an empty schedule means no retry"


@pytest.mark.req("DEC-19")
def test_exponential_policy_multiplies_up_to_its_longest_wait() -> None:
    policy = Exponential(SECOND, attempts_max=7, factor=3, wait_max=30 * SECOND)
    assert [d.total_seconds() for d in delays(policy)] == [1, 3, 9, 27, 30, 30]


def test_exponential_does_not_overflow_after_many_attempts() -> None:
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


# The retry fields of a channel: checked when they are saved, replaced when a stored value is out of range


def test_missing_retry_fields_get_their_defaults() -> None:
    assert check_fixed(None, None) == (10, 60.0)
    assert check_fixed(3, 2.5) == (3, 2.5)


@pytest.mark.bad_input(26)
@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("max_retries", 0, "between 1 and 1000, got 0"),
        ("max_retries", -1, "between 1 and 1000, got -1"),
        ("max_retries", 10**9, "between 1 and 1000"),
        ("max_retries", 1e9, "whole number"),
        ("max_retries", True, "whole number"),
        ("max_retries", "3", "whole number"),
        ("retry_delay_s", "5m", "seconds, got str '5m'"),
        ("retry_delay_s", float("nan"), "seconds"),
        ("retry_delay_s", float("inf"), "seconds"),
        ("retry_delay_s", 0, "more than 0"),
        ("retry_delay_s", -60, "more than 0"),
        ("retry_delay_s", 1e9, "at most 31622400"),
        ("retry_delay_s", 10**400, "at most 31622400"),
    ],
)
def test_retry_field_out_of_range_is_rejected_naming_field_and_rule(field: str, value: object, rule: str) -> None:
    given: dict[str, object] = {"max_retries": None, "retry_delay_s": None, field: value}
    with pytest.raises(InvalidInput, match=rule) as caught:
        check_fixed(**given)
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field} must be")


@pytest.mark.req("RTY-01")
def test_valid_settings_are_accepted_unchanged() -> None:
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


def test_two_bad_values_are_both_named() -> None:
    assert fixed_from_settings(None, None) == (Fixed(MINUTE, 10), ["max_retries", "retry_delay_s"])


@pytest.mark.parametrize("text", ["schedule:" + ",".join(f"{day}d" for day in range(1, 52)), "fixed:1s:2" + " " * 1000])
def test_policy_that_could_not_be_read_back_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    assert caught.value.field == "retry"


def test_longest_schedule_survives_storing() -> None:
    policy = parse("schedule:" + ",".join(f"{day}d" for day in range(1, 51)))
    assert parse(to_text(policy)) == policy
