"""Quick tries: the waits of both patterns, the window of eight seconds, and the codes worth one."""

import pytest

from fieldpost.core.delivery.quick_tries import QuickTries, TryPattern, is_worth_a_try, next_try_s


@pytest.mark.req("WHK-03")
@pytest.mark.dec("DEC-20")
def test_the_default_is_four_repeats_in_powers_of_two() -> None:
    waits, elapsed = [], 0.0
    for tries in range(1, 7):
        wait_s = next_try_s(QuickTries(), tries, elapsed)
        waits.append(wait_s)
        elapsed += wait_s or 0
    assert waits == [0.5, 1, 2, 4, None, None]


@pytest.mark.req("WHK-03")
def test_linear_waits_grow_by_the_base() -> None:
    policy = QuickTries(pattern=TryPattern.LINEAR)
    assert [policy.wait_s(repeat) for repeat in range(1, 5)] == [0.5, 1, 1.5, 2]


@pytest.mark.req("WHK-04")
@pytest.mark.dec("DEC-82")
def test_no_quick_try_starts_more_than_eight_seconds_after_the_first() -> None:
    assert next_try_s(QuickTries(), 4, 4.0) == 4
    assert next_try_s(QuickTries(), 4, 4.001) is None
    assert next_try_s(QuickTries(repeats=10), 5, 7.5) is None


def test_without_repeats_there_is_one_try() -> None:
    assert next_try_s(QuickTries(repeats=0), 1, 0) is None


@pytest.mark.req("WHK-18", "WHK-19", "WHK-20")
def test_statuses_that_are_retried_quickly() -> None:
    extra = frozenset({404})
    worth = {status for status in range(200, 600) if is_worth_a_try(status, extra)}
    assert worth == {404, 408, 429, *range(500, 600)}
