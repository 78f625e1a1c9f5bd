"""Parsing of the Retry-After header (RFC 9110, 10.2.3): seconds or a date."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_DIGITS_MAX = 9


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """The wait that the server requests, not clamped; None if the header is missing or invalid."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:_DIGITS_MAX]) if len(text) <= _DIGITS_MAX else float("1" + "0" * _DIGITS_MAX)
    try:
        when = parsedate_to_datetime(text)
        # HTTP dates are in UTC.
        wait_s = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    except (ValueError, OverflowError, IndexError):
        return None
    return wait_s if wait_s > 0 else None
