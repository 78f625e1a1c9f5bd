"""Times as text and as microseconds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from fieldpost.core.times import from_microseconds, from_text, microseconds_to_text, to_microseconds, to_text


@pytest.mark.req("TOP-07")
def test_a_time_of_any_zone_is_written_in_utc_with_microseconds() -> None:
    moment = datetime(2026, 11, 15, 1, 2, 3, tzinfo=timezone(timedelta(hours=14)))
    assert to_text(moment) == "2026-11-14T11:02:03.000000Z"


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 11, 15, 8, 0, 0, 7, tzinfo=UTC),
        datetime(2026, 11, 15, 8, 0, 0, 999_999, tzinfo=UTC),
        datetime(2026, 11, 15, 8, 0, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 11, 15, 1, 2, 3, 40, tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_microseconds_are_written_the_same(moment: datetime) -> None:
    assert microseconds_to_text(to_microseconds(moment)) == to_text(moment)


@pytest.mark.parametrize(
    "moment", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 15, 8, 0, 0, 123456, tzinfo=UTC)]
)
def test_text_and_microseconds_round_trip(moment: datetime) -> None:
    assert from_text(to_text(moment)) == moment
    assert from_microseconds(to_microseconds(moment)) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-11-15T08:00:00", "9999-12-31T23:59:59-14:00", "2026-13-01T00:00:00Z"]
)
def test_text_that_is_not_a_time_is_none(text: str) -> None:
    assert from_text(text) is None
