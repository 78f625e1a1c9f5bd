"""UUIDv7 ids made from given entropy. Only the spelling with 36 lower-case characters is accepted.

The sender creates a notification's id before any network contact, so the id is also the idempotency key of every hop.
"""

import re
from datetime import datetime
from hashlib import sha256
from typing import NewType

from fieldpost.core.errors import InvalidInput
from fieldpost.core.times import to_microseconds

NotificationId = NewType("NotificationId", str)
CallId = NewType("CallId", str)

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


ENTROPY_BYTES = 10
"""The entropy of one id."""


def new_id(now: datetime, entropy: bytes) -> str:
    """A UUIDv7 from the time and ten bytes of entropy; ids made later sort later, to the millisecond."""
    return id_with(int(now.timestamp() * 1000), id_tails(entropy)[0])


def new_ids(now: datetime, entropy: bytes) -> list[str]:
    """One id per ten bytes of entropy, in ascending order, for work in batches."""
    begin = id_with(int(now.timestamp() * 1000), "")
    return sorted([begin + tail for tail in id_tails(entropy)])


def precise_id(now: datetime, entropy: bytes) -> str:
    """A UUIDv7 whose first random bits hold the fraction of the millisecond: ids sort to the microsecond.

    SQLite's clock has milliseconds, and events of one order key are published in the order of their ids then.
    """
    milliseconds, microseconds = divmod(to_microseconds(now), 1000)
    random = entropy.hex()
    tail = f"7{microseconds * 4096 // 1000:03x}-{_VARIANT[random[0]]}{random[1:4]}-{random[4:16]}"
    return id_with(milliseconds, tail)


def id_with(milliseconds: int, tail: str) -> str:
    """Join a time and a tail prepared by `id_tails`."""
    time = (milliseconds & 0xFFFF_FFFF_FFFF).to_bytes(6, "big").hex()
    return f"{time[:8]}-{time[8:]}-{tail}"


def id_tails(entropy: bytes) -> list[str]:
    """The parts of ids that follow the time, one per ten bytes of entropy."""
    random = entropy.hex()
    return [
        f"7{random[at : at + 3]}-{_VARIANT[random[at + 3]]}{random[at + 4 : at + 7]}-{random[at + 7 : at + 19]}"
        for at in range(0, len(random) - 19, 2 * ENTROPY_BYTES)
    ]


def derived_id(*parts: str) -> str:
    """A UUIDv8 that depends only on these texts."""
    text = sha256(b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)).hexdigest()
    return f"{text[:8]}-{text[8:12]}-8{text[12:15]}-{_VARIANT[text[15]]}{text[16:19]}-{text[19:31]}"


# The two highest bits of this digit are the UUID variant.
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def is_id(text: object) -> bool:
    """Whether this is an id in the canonical spelling. With one spelling, an id cannot have two rows."""
    return type(text) is str and _CANONICAL.fullmatch(text) is not None


def parse_notification_id(text: object) -> NotificationId:
    """Return the id, or raise InvalidInput; other spellings (capitals, braces, no dashes, nil) are invalid."""
    return NotificationId(_parse(text, "notification.bad_id", "notification_id"))


def parse_sent_id(text: object) -> NotificationId:
    """Return an id that a sender made, or raise InvalidInput.

    Version 8 is central's own: it derives such ids from public values, so a sender could compute one in advance and
    take it away from the notification it belongs to.
    """
    known = parse_notification_id(text)
    refuse_derived(known, "notification.bad_id", "notification_id")
    return known


def refuse_derived(known_id: str, code: str, field: str) -> None:
    """Raise InvalidInput for an id of version 8."""
    if known_id[14] == "8":
        raise InvalidInput(
            code, f"{field} must not be a UUID of version 8, which only central makes; use version 7", field=field
        )


def parse_call_id(text: object) -> CallId:
    """Return the id, or raise InvalidInput; same spelling rule as for notifications."""
    return CallId(_parse(text, "call.bad_id", "call_id"))


def _parse(text: object, code: str, field: str) -> str:
    if not is_id(text):
        raise InvalidInput(code, f"{field} must be a UUID of 36 lower-case characters with dashes", field=field)
    return str(text)
