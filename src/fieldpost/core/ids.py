"""Ids from given entropy: UUIDv7, 36 lower-case characters, the one spelling that is ever accepted.

The sender makes a notification's id before any network contact, so the id is also the idempotency key of every hop.
"""

import re
from datetime import datetime
from typing import NewType

from fieldpost.core.errors import InvalidInput

NotificationId = NewType("NotificationId", str)

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def new_id(now: datetime, entropy: bytes) -> str:
    """A UUIDv7 from the time and ten bytes of entropy; ids made later sort later, to the millisecond."""
    milliseconds = int(now.timestamp() * 1000) & 0xFFFF_FFFF_FFFF
    value = (milliseconds << 80) | int.from_bytes(entropy[:10], "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_ids(now: datetime, entropy: bytes) -> list[str]:
    """As many ids as there are ten-byte pieces in the entropy, in ascending order, for work that goes in sets."""
    return sorted(new_id(now, entropy[start : start + 10]) for start in range(0, len(entropy), 10))


def is_id(text: object) -> bool:
    """Whether this is an id in its one spelling (so that no id can have two rows)."""
    return type(text) is str and _CANONICAL.fullmatch(text) is not None


def parse_notification_id(text: object) -> NotificationId:
    """The id as given, or InvalidInput; other spellings (capitals, braces, no dashes, nil) are refused."""
    if not is_id(text):
        raise InvalidInput(
            "notification.bad_id",
            "notification_id must be a UUID of 36 lower-case characters with dashes",
            field="notification_id",
        )
    return NotificationId(str(text))
