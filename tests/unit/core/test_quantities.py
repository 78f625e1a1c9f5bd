"""Numbers, durations and sizes as people read them."""

from datetime import timedelta

import pytest

from fieldpost.core.quantities import age, number, offset, plural, recent, size


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        *((0, "target", "0 targets"), (1, "target", "1 target"), (2, "target", "2 targets")),
        *((1, "entry", "1 entry"), (3, "entry", "3 entries"), (1, "batch", "1 batch"), (4, "batch", "4 batches")),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, noun: str, text: str) -> None:
    assert plural(count, noun) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3_600, "1 h"),
        (11_100, "3 h 5 min"),
        (864_000, "10 d"),
    ],
)
def test_a_duration_is_never_negative_and_has_at_most_two_units(seconds: float, text: str) -> None:
    assert age(seconds) == age(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(60, "the last minute"), (300, "the last 5 min"), (3_600, "the last hour")]
)
def test_a_time_that_ends_now_needs_no_one(seconds: float, text: str) -> None:
    assert recent(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(-0.04, "0.0 s"), (0.0, "0.0 s"), (-0.2, "-0.2 s"), (1.5, "+1.5 s")])
def test_the_offset_of_a_correct_clock_has_no_sign(seconds: float, text: str) -> None:
    assert offset(seconds) == text


def test_missing_values_are_a_dash() -> None:
    assert age(None) == number(None) == size(None) == "–"
