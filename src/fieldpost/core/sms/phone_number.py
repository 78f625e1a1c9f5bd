"""Phone numbers in E.164: a plus sign, the country code and the subscriber's number, at most 15 digits.

A number without a country code is rejected, because its meaning depends on the network that sends the message.
"""

import re
from enum import StrEnum

from fieldpost.core.errors import InvalidInput

DIGITS_MIN = 7
DIGITS_MAX = 15
_SEPARATED = re.compile(r"\+[0-9]+(?:[ .-][0-9]+)*", re.ASCII)
_SEPARATORS = re.compile(r"[ .-]")
_SHOWN_MAX = 40


class NumberFormat(StrEnum):
    """How a gateway wants the international prefix to be written."""

    PLUS = "+"
    ZEROS = "00"
    BARE = "bare"


def check_number(value: object, field: str = "target") -> str:
    """The number in its canonical form such as +4915112345678; single spaces, dots and hyphens between digits are
    dropped. Raises InvalidInput."""
    if type(value) is not str:
        raise InvalidInput("number.type", f"{field} must be a str, not {type(value).__name__}", field=field)
    text = value.strip(" ")
    if _SEPARATED.fullmatch(text) is None:
        hint = "write it with its country code, such as +4915112345678"
        raise InvalidInput(
            "number.invalid",
            f"{field} must be a phone number of + and digits, got {_shown(value)}",
            hint=hint,
            field=field,
        )
    number = _SEPARATORS.sub("", text)
    if number[1] == "0":
        raise InvalidInput(
            "number.country", f"{field} must have a country code after the +, got {_shown(value)}", field=field
        )
    if not DIGITS_MIN <= (digits := len(number) - 1) <= DIGITS_MAX:
        raise InvalidInput(
            "number.length", f"{field} must have {DIGITS_MIN} to {DIGITS_MAX} digits, got {digits}", field=field
        )
    return number


def formatted(number: str, number_format: NumberFormat) -> str:
    """A canonical number as a gateway wants it."""
    match number_format:
        case NumberFormat.PLUS:
            return number
        case NumberFormat.ZEROS:
            return "00" + number[1:]
        case NumberFormat.BARE:
            return number[1:]


def _shown(value: str) -> str:
    return ascii(value[:_SHOWN_MAX] + ("..." if len(value) > _SHOWN_MAX else ""))
