"""Pages: their size, and the end of a page as an opaque text, with which the caller requests the next page."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.times import from_microseconds, to_microseconds

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
_TEXT = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MICROSECONDS = re.compile(r"[0-9]{1,17}")


def page_start(limit: int, cursor: str | None) -> PageKey | None:
    """Where the page after this cursor starts; None for the first page. Raises InvalidInput, also for the limit."""
    check_limit(limit)
    return None if cursor is None else from_cursor(cursor)


def check_limit(limit: int) -> int:
    """The checked size of a page."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput("limit.range", f"limit must be between 1 and {LIMIT_MAX}, got {limit}", field="limit")
    return limit


def to_cursor(key: PageKey) -> str:
    at, notification_id = key
    return urlsafe_b64encode(f"{to_microseconds(at)}.{notification_id}".encode()).decode().rstrip("=")


def from_cursor(text: str) -> PageKey:
    """The key in a cursor. Raises InvalidInput for texts that `to_cursor` does not make."""
    if not _TEXT.fullmatch(text):
        raise invalid_cursor()
    try:
        microseconds, _, notification_id = (
            urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii").partition(".")
        )
        if not _MICROSECONDS.fullmatch(microseconds) or not is_id(notification_id):
            raise invalid_cursor()
        key = from_microseconds(int(microseconds)), notification_id
    except (ValueError, OverflowError):
        raise invalid_cursor() from None
    if to_cursor(key) != text:
        raise invalid_cursor()
    return key


def invalid_cursor() -> InvalidInput:
    rule = "cursor must be the next_cursor of a page"
    return InvalidInput("cursor.invalid", rule, field="cursor", hint="omit it for the first page")
