"""When parked webhook notifications expire."""

from datetime import UTC, datetime

import pytest

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.events.expiry import parse_scan_time

MONDAY = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.req("WHK-11")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:01", "2026-11-16 12:01"),
        ("12:00", "2026-11-17 12:00"),
        ("00:00", "2026-11-17 00:00"),
        ("sunday", "2026-11-22 00:00"),
        ("Monday", "2026-11-23 00:00"),
        ("monday 23:59", "2026-11-16 23:59"),
        ("monday 12:00", "2026-11-23 12:00"),
        ("TUESDAY 02:30", "2026-11-17 02:30"),
    ],
)
def test_the_next_scan(text: str, expected: str) -> None:
    scan = parse_scan_time(text, "at")
    assert scan is not None
    assert f"{scan.next_after(MONDAY):%Y-%m-%d %H:%M}" == expected


@pytest.mark.req("WHK-11")
@pytest.mark.dec("DEC-50")
@pytest.mark.parametrize("text", ["never", "disabled", "n/a", "N/A", ""])
def test_never_is_the_default(text: str) -> None:
    assert parse_scan_time(text, "at") is None
    assert WebhookOptions().scan_time is None


@pytest.mark.dec("DEC-50")
@pytest.mark.parametrize("text", ["24:00", "2:30", "daily", "sunday 25:00", "sunday monday", "12:00 sunday", "off"])
def test_any_other_value_is_rejected_at_start(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"at must be HH:MM"):
        parse_scan_time(text, "at")
    with pytest.raises(ConfigError) as refused:
        WebhookOptions(expire_parked_at=text)
    assert refused.value.field == "webhooks.expire_parked_at"


@pytest.mark.req("WHK-14", "WHK-15", "WHK-17")
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"failures_max": 0}, "failures_max"),
        ({"failures_max": 21}, "failures_max"),
        ({"break_s": 600.0}, "lapse_s"),
        ({"slots": 0}, "slots"),
    ],
)
def test_webhook_settings_out_of_range_are_rejected_at_start(options: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        WebhookOptions(**options)  # type: ignore[arg-type]
    assert refused.value.field == f"webhooks.{field}"
