"""The place where a page of notifications ended, as an opaque text that a caller hands back."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.times import from_microseconds, to_microseconds

_TEXT = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MICROSECONDS = re.compile(r"[0-9]{1,17}")


def to_cursor(place: PageKey) -> str:
    at, notification_id = place
    return urlsafe_b64encode(f"{to_microseconds(at)}.{notification_id}".encode()).decode().rstrip("=")


def from_cursor(text: str) -> PageKey:
    """The place, or InvalidInput for anything that `to_cursor` cannot have made."""
    if not _TEXT.fullmatch(text):
        raise _invalid()
    try:
        microseconds, _, notification_id = (
            urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii").partition(".")
        )
        if not _MICROSECONDS.fullmatch(microseconds) or not is_id(notification_id):
            raise _invalid()
        place = from_microseconds(int(microseconds)), notification_id
    except (ValueError, OverflowError):
        raise _invalid() from None
    if to_cursor(place) != text:
        raise _invalid()
    return place


def _invalid() -> InvalidInput:
    return InvalidInput(
        "cursor.invalid", "cursor is none that was handed out", field="cursor", hint="begin again without one"
    )
