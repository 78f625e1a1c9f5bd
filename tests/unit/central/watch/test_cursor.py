"""Cursors: handed out, handed back, and nothing else."""

from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.central.watch.cursor import from_cursor, to_cursor
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import new_id
from fieldpost.core.times import from_microseconds

moments = st.integers(0, 8 * 10**15).map(from_microseconds)


@given(at=moments, entropy=st.binary(min_size=10, max_size=10))
def test_cursor_round_trip(at: datetime, entropy: bytes) -> None:
    place = at, new_id(at, entropy)
    assert from_cursor(to_cursor(place)) == place


@given(st.text(max_size=120))
def test_any_other_text_is_rejected_without_another_error(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_cursor(text)
    assert (refused.value.code, refused.value.field) == ("cursor.invalid", "cursor")


ID = "0198c8a0-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    "inner", [f"1.{ID.upper()}", f"-1.{ID}", f"01.{ID}", f"{10**17}.{ID}", f"1.{ID}.", ID, "1.", f"١.{ID}", f"1 .{ID}"]
)
def test_forged_cursor_is_rejected(inner: str) -> None:
    with pytest.raises(InvalidInput):
        from_cursor(urlsafe_b64encode(inner.encode()).decode().rstrip("="))


def test_padded_or_non_canonical_cursor_is_rejected() -> None:
    cursor = to_cursor((datetime(2026, 11, 15, tzinfo=UTC) + timedelta(microseconds=1), ID))
    for other in (cursor + "=", cursor + "==", cursor[:-1] + chr(ord(cursor[-1]) + 1)):
        with pytest.raises(InvalidInput):
            from_cursor(other)
