"""Segments are counted as networks bill them."""

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.core.sms.segments import SmsEncoding, check_segments_max, count_segments


@pytest.mark.parametrize(
    ("text", "encoding", "units", "count"),
    [
        ("", "gsm7", 0, 1),
        ("a" * 160, "gsm7", 160, 1),
        ("a" * 161, "gsm7", 161, 2),
        ("a" * 306, "gsm7", 306, 2),
        ("a" * 307, "gsm7", 307, 3),
        ("Pumpe läuft heiß: 93 §", "gsm7", 22, 1),
        ("€" * 80, "gsm7", 160, 1),
        ("€" * 81, "gsm7", 162, 2),
        # The pair of the euro sign would begin at unit 153: it moves to the next segment, which then has 154 units.
        ("a" * 152 + "€" + "a" * 151, "gsm7", 305, 2),
        ("a" * 152 + "€" + "a" * 152, "gsm7", 306, 3),
        ("Насос" + "a" * 65, "ucs2", 70, 1),
        ("Насос" + "a" * 66, "ucs2", 71, 2),
        ("ж" * 134, "ucs2", 134, 2),
        ("ж" * 135, "ucs2", 135, 3),
        ("🔥" * 35, "ucs2", 70, 1),
        ("ж" * 66 + "🔥" + "ж" * 65, "ucs2", 133, 2),
        ("ж" * 66 + "🔥" + "ж" * 66, "ucs2", 134, 3),
        ("…", "ucs2", 1, 1),
        ("...", "gsm7", 3, 1),
        ("93 °C", "ucs2", 5, 1),
        ("a\tb", "ucs2", 3, 1),
    ],
)
def test_segments(text: str, encoding: str, units: int, count: int) -> None:
    found = count_segments(text)
    assert (found.encoding, found.units, found.count) == (SmsEncoding(encoding), units, count)


@pytest.mark.parametrize("value", [0, 11, "3", True, 2.0, None])
def test_the_number_of_segments_is_limited(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_segments_max(value)
    assert refused.value.field == "segments_max"
    assert refused.value.message == "segments_max must be a whole number from 1 to 10"
