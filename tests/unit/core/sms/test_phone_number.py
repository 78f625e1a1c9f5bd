"""Phone numbers are stored in one form, E.164, and anything else is rejected with the rule."""

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.core.sms.phone_number import NumberFormat, check_number, formatted


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("+4915112345678", "+4915112345678"),
        (" +49 151 1234-5678 ", "+4915112345678"),
        ("+1.555.010.0123", "+15550100123"),
        ("+2904001", "+2904001"),
        ("+123456789012345", "+123456789012345"),
    ],
)
def test_number_is_stored_in_canonical_form(given: str, kept: str) -> None:
    assert check_number(given) == kept
    assert check_number(kept) == kept


@pytest.mark.parametrize(
    ("given", "code", "rule"),
    [
        ("015112345678", "number.invalid", "must be a phone number of + and digits"),
        ("+49151CALLME", "number.invalid", "must be a phone number of + and digits"),
        ("+1234567890123456", "number.length", "must have 7 to 15 digits, got 16"),
        ("+491511", "number.length", "must have 7 to 15 digits, got 6"),
        ("+", "number.invalid", "must be a phone number of + and digits"),
        ("+０４９１５１１２３４５", "number.invalid", "must be a phone number of + and digits"),
        ("+49 (0)151 12345678", "number.invalid", "must be a phone number of + and digits"),
        ("+0151123456", "number.country", "must have a country code after the +"),
        ("+49151\n12345678", "number.invalid", "must be a phone number of + and digits"),
        ("", "number.invalid", "must be a phone number of + and digits"),
        (4915112345678, "number.type", "must be a str, not int"),
    ],
)
def test_a_bad_number_is_rejected_with_field_and_rule(given: object, code: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_number(given)
    assert refused.value.code == code
    assert refused.value.field == "target"
    assert rule in refused.value.message
    assert refused.value.message.isprintable()


def test_a_gateway_gets_the_number_in_its_own_format() -> None:
    written = [formatted("+4915112345678", one) for one in NumberFormat]
    assert written == ["+4915112345678", "004915112345678", "4915112345678"]
