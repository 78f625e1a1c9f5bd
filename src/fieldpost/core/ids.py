"""Ids from given entropy: UUIDv7, 36 lower-case characters, the one spelling that is ever accepted.

The sender makes a notification's id before any network contact, so the id is also the idempotency key of every hop.
"""

import re
from datetime import datetime
from hashlib import sha256
from typing import NewType

from fieldpost.core.errors import InvalidInput

NotificationId = NewType("NotificationId", str)
CallId = NewType("CallId", str)

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


ENTROPY_BYTES = 10
"""What one id takes."""


def new_id(now: datetime, entropy: bytes) -> str:
    """A UUIDv7 from the time and ten bytes of entropy; ids made later sort later, to the millisecond."""
    return id_with(int(now.timestamp() * 1000), id_tails(entropy)[0])


def new_ids(now: datetime, entropy: bytes) -> list[str]:
    """As many ids as there are ten-byte pieces in the entropy, in ascending order, for work that goes in sets."""
    begin = id_with(int(now.timestamp() * 1000), "")
    return sorted([begin + tail for tail in id_tails(entropy)])


def id_with(milliseconds: int, tail: str) -> str:
    """The id of this time with this tail, for whoever makes tails beforehand."""
    time = (milliseconds & 0xFFFF_FFFF_FFFF).to_bytes(6, "big").hex()
    return f"{time[:8]}-{time[8:]}-{tail}"


def id_tails(entropy: bytes) -> list[str]:
    """What follows the time in an id, one for each ten bytes of the entropy."""
    random = entropy.hex()
    return [
        f"7{random[at : at + 3]}-{_VARIANT[random[at + 3]]}{random[at + 4 : at + 7]}-{random[at + 7 : at + 19]}"
        for at in range(0, len(random) - 19, 2 * ENTROPY_BYTES)
    ]


def derived_id(*parts: str) -> str:
    """A UUIDv8 that is the same whenever it is made of the same texts, and of no others."""
    text = sha256(b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[12:15]}-{_VARIANT[text[15]]}{text[16:19]}-{text[19:31]}"


# The two highest bits of this digit say which variant of UUID it is.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


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


def parse_call_id(text: object) -> CallId:
    """The id as given, or InvalidInput; the same one spelling."""
    if not is_id(text):
        raise InvalidInput(
            "operation.bad_id",
            "call_id must be a UUID of 36 lower-case characters with dashes",
            field="call_id",
        )
    return CallId(str(text))
