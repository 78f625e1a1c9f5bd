"""Segments of a text message: how many parts a network sends, and bills, for one text.

A text of the GSM 7-bit alphabet has up to 160 units in one segment, or 153 in each of several, because a header that
joins them takes 7. Twelve characters, such as the euro sign, take two units, and such a pair is not divided between
segments. One character outside the alphabet makes the whole text UCS-2: 70 units of 16 bits, or 67 in each of several;
a character beyond U+FFFF takes two units and is not divided either.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from fieldpost.core.errors import InvalidInput

SEGMENTS_MAX_DEFAULT = 3
SEGMENTS_MAX_LIMIT = 10
"""Most networks join up to 10 segments; 255 are possible by the header."""
ELLIPSIS = "..."
"""Marks the end of a truncated text. The character for it is not in the GSM alphabet."""

_BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION = "\f^{}\\[~]|€"
_IS_GSM = re.compile(f"[{re.escape(_BASIC + _EXTENSION)}]*")
_ESCAPE = "\x1b"


class SmsEncoding(StrEnum):
    GSM7 = "gsm7"
    UCS2 = "ucs2"


@dataclass(frozen=True, slots=True)
class SegmentCount:
    """The size of a text message."""

    encoding: SmsEncoding
    units: int
    count: int


def encoding_of(text: str) -> SmsEncoding:
    """The encoding that a text needs."""
    return SmsEncoding.GSM7 if _IS_GSM.fullmatch(text) else SmsEncoding.UCS2


def count_segments(text: str) -> SegmentCount:
    """How many segments a text takes; an empty text takes one."""
    if encoding_of(text) is SmsEncoding.GSM7:
        units = text
        for character in _EXTENSION:
            units = units.replace(character, _ESCAPE + character)
        return SegmentCount(SmsEncoding.GSM7, len(units), _packed_gsm(units))
    encoded = text.encode("utf-16-be", "replace")
    return SegmentCount(SmsEncoding.UCS2, len(encoded) // 2, _packed_ucs2(encoded))


def segments_of(text: str) -> int:
    """The number of segments alone, as a measure for fitting a text."""
    return count_segments(text).count


def foreign_characters(text: str) -> str:
    """The characters of a text that are not in the GSM alphabet, each once: they make the text UCS-2."""
    return "".join(dict.fromkeys(one for one in text if not _IS_GSM.fullmatch(one)))


def check_segments_max(value: object, field: str = "segments_max") -> int:
    """The number of segments that a text may take; raises InvalidInput."""
    if type(value) is not int or not 1 <= value <= SEGMENTS_MAX_LIMIT:
        raise InvalidInput(
            "segments.invalid", f"{field} must be a whole number from 1 to {SEGMENTS_MAX_LIMIT}", field=field
        )
    return value


def _packed_gsm(units: str) -> int:
    if len(units) <= 160:
        return 1
    count = start = 0
    while start < len(units):
        end = start + 153
        start = end - 1 if units[end - 1 : end] == _ESCAPE else end
        count += 1
    return count


def _packed_ucs2(encoded: bytes) -> int:
    if len(encoded) <= 2 * 70:
        return 1
    count = start = 0
    while start < len(encoded):
        end = start + 2 * 67
        # The first byte of the last unit: D8 to DB begin a pair.
        is_divided = end < len(encoded) and 0xD8 <= encoded[end - 2] <= 0xDB
        start = end - 2 if is_divided else end
        count += 1
    return count
