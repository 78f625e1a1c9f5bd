"""The header Retry-After (RFC 9110, 10.2.3): seconds, or a date."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_DIGITS_MAX = 9


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """How long the other side asks us to wait; None when it does not, or says nothing one can read. Not yet clamped."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:_DIGITS_MAX]) if len(text) <= _DIGITS_MAX else float("1" + "0" * _DIGITS_MAX)
    try:
        when = parsedate_to_datetime(text)
        # A date without a zone is in UTC, as all of HTTP's are.
        wait_s = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    except (ValueError, OverflowError, IndexError):
        return None
    return wait_s if wait_s > 0 else None
