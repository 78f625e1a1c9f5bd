"""The first password."""

from hypothesis import given
from hypothesis import strategies as st

from fieldpost.central.access.passwords import SYLLABLES, readable_password


@given(st.binary(min_size=SYLLABLES, max_size=SYLLABLES))
def test_generated_password_is_pronounceable(entropy: bytes) -> None:
    password = readable_password(entropy)
    assert [len(part) for part in password.split("-")] == [4] * (SYLLABLES // 2)
    assert all(part[0] not in "aeio" and part[1] in "aeio" for part in password.split("-"))


def test_generated_password_has_more_than_64_bits() -> None:
    each = {readable_password(bytes([value, 0]))[:2] for value in range(256)}
    assert len(each) == 64
    assert SYLLABLES * 6 > 64
