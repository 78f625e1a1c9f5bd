"""Reading Retry-After."""

from datetime import UTC, datetime

import pytest

from fieldpost.outbound.retry_after import retry_after_s

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("120", 120),
        (" 5 ", 5),
        ("0", 0),
        ("9" * 400, 1e9),
        ("Sun, 15 Nov 2026 12:00:30 GMT", 30),
        ("Sun, 15 Nov 2026 12:00:30", 30),
        ("Sun, 15 Nov 2026 13:00:30 +0100", 30),
        ("Sun, 15 Nov 2026 11:59:30 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
        ("Sun, 99 Nov 99999999999 12:00:30 GMT", None),
        (None, None),
    ],
)
def test_seconds_and_dates_are_read_and_nonsense_is_ignored(text: str | None, wait_s: float | None) -> None:
    assert retry_after_s(text, NOW) == wait_s
