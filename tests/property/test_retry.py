"""Retry policies: never earlier than promised, used up exactly when they say, written and read back as themselves."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.retry import (
    ATTEMPTS_LIMIT,
    WAITS_LIMIT,
    Exponential,
    Fixed,
    RetryPolicy,
    Schedule,
    fixed_from_settings,
    parse,
    to_text,
)

MICROSECOND = timedelta.resolution

waits = st.timedeltas(timedelta(microseconds=1), timedelta(days=366))
attempts = st.integers(1, ATTEMPTS_LIMIT)
# Six places, as a setting has them.
jitters = st.integers(0, 10**6).map(lambda millionths: millionths / 10**6)
factors = st.integers(10**6, 10**8).map(lambda millionths: millionths / 10**6)
chances = st.floats(0, 1, exclude_max=True)
schedules = st.sets(waits, max_size=WAITS_LIMIT).map(lambda found: tuple(sorted(found)))

policies = st.one_of(
    st.builds(Fixed, waits, attempts, jitters),
    st.builds(Schedule, schedules, jitters),
    st.builds(Exponential, waits, attempts, factors, waits, jitters),
)


def attempts_max(policy: RetryPolicy) -> int:
    return len(policy.waits) + 1 if isinstance(policy, Schedule) else policy.attempts_max


def promised(policy: RetryPolicy, failure: int) -> timedelta:
    """The least wait after this failure, by the words of the policy."""
    match policy:
        case Fixed():
            return policy.wait
        case Schedule():
            return policy.waits[failure - 1]
        case Exponential():
            grown = Decimal(policy.wait // MICROSECOND) * Decimal(policy.factor) ** (failure - 1)
            return int(min(grown, policy.wait_max // MICROSECOND)) * MICROSECOND


@pytest.mark.req("DEC-19")
@given(policies, st.integers(1, ATTEMPTS_LIMIT), chances)
def test_no_delay_is_shorter_than_promised_nor_longer_than_jitter_allows(
    policy: RetryPolicy, failure: int, chance: float
) -> None:
    delay = policy.delay(failure, chance)
    if delay is not None:
        least = promised(policy, failure)
        rounded = least * 1e-9 + MICROSECOND
        assert least - rounded <= delay <= least * (1 + policy.jitter) + rounded


@pytest.mark.req("DEC-19")
@given(policies, st.integers(1, ATTEMPTS_LIMIT), chances, chances)
def test_jitter_only_ever_adds(policy: RetryPolicy, failure: int, less: float, more: float) -> None:
    less, more = sorted((less, more))
    found = [policy.delay(failure, chance) for chance in (0.0, less, more)]
    if found[0] is not None:
        assert found[0] <= found[1] <= found[2]  # type: ignore[operator]


@pytest.mark.req("LIF-08", "DEC-19")
@given(policies, chances)
def test_a_policy_is_used_up_exactly_at_its_last_attempt(policy: RetryPolicy, chance: float) -> None:
    last = attempts_max(policy)
    assert policy.delay(last, chance) is None
    assert policy.delay(last + 1, chance) is None
    if last > 1:
        assert policy.delay(1, chance) is not None
        assert policy.delay(last - 1, chance) is not None


@given(st.builds(Exponential, waits, attempts, factors, waits), st.integers(1, ATTEMPTS_LIMIT - 2))
def test_an_exponential_wait_never_shrinks_nor_passes_its_longest(policy: Exponential, failure: int) -> None:
    one, next_one = policy.delay(failure, 0.0), policy.delay(failure + 1, 0.0)
    if one is not None and next_one is not None:
        assert one <= next_one <= policy.wait_max


@given(policies)
def test_a_policy_written_as_text_is_read_back_to_the_microsecond(policy: RetryPolicy) -> None:
    assert parse(to_text(policy)) == policy


json_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers())


@pytest.mark.req("RTY-03", "RTY-04", "RTY-05")
@pytest.mark.bad_input(26)
@given(json_values, json_values)
def test_any_channel_row_gives_a_policy_with_a_delay_and_names_replaced_values(
    max_retries: object, retry_delay_s: object
) -> None:
    policy, replaced = fixed_from_settings(max_retries, retry_delay_s)
    assert policy.attempts_max == (10 if "max_retries" in replaced else max_retries)
    assert policy.attempts_max >= 1
    assert policy.wait > timedelta(0)
    if "retry_delay_s" in replaced:
        assert policy.wait == timedelta(minutes=1)
    elif isinstance(retry_delay_s, int | float):
        assert policy.wait == timedelta(seconds=retry_delay_s)
