"""Ids: one spelling, made from given time and entropy, in order of time."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id, new_id, new_ids, parse_notification_id

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
GOOD = "019a8b3c-1234-7abc-8def-0123456789ab"
moments = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
entropies = st.binary(min_size=10, max_size=10)


class Text(str):
    __slots__ = ()


@pytest.mark.req("TBL-02")
@given(moments, entropies)
def test_new_id_is_a_canonical_version_7_uuid_of_its_time(now: datetime, entropy: bytes) -> None:
    made = new_id(now, entropy)
    parsed = UUID(made)
    assert (parsed.version, parsed.variant) == (7, "specified in RFC 4122")
    assert str(parsed) == made
    assert is_id(made)
    assert parsed.int >> 80 == int(now.timestamp() * 1000)


@given(st.lists(st.tuples(moments, entropies), min_size=2, max_size=2))
def test_ids_made_later_sort_later_to_the_millisecond(made: list[tuple[datetime, bytes]]) -> None:
    (first, _), (second, _) = sorted(made)
    earlier, later = (new_id(*one) for one in sorted(made))
    if second - first >= timedelta(milliseconds=1):
        assert earlier < later


@given(st.binary(max_size=105))
def test_a_set_of_ids_is_ascending_and_has_one_for_every_ten_bytes(entropy: bytes) -> None:
    made = new_ids(NOW, entropy)
    assert len(made) == len(entropy) // 10
    assert made == sorted(made)
    pieces = [entropy[at : at + 10] for at in range(0, len(entropy) - 9, 10)]
    assert sorted(new_id(NOW, piece) for piece in pieces) == made


@given(entropies, entropies)
def test_different_entropy_gives_a_different_id(one: bytes, other: bytes) -> None:
    # Six of the eighty bits make way for version and variant.
    kept = [int.from_bytes(entropy, "big") >> 68 for entropy in (one, other)]
    if kept[0] != kept[1]:
        assert new_id(NOW, one) != new_id(NOW, other)


@pytest.mark.parametrize("version", range(1, 9))
def test_uuid_of_any_version_is_accepted(version: int) -> None:
    assert parse_notification_id(f"019a8b3c-1234-{version}abc-8def-0123456789ab").startswith("019a8b3c")


@pytest.mark.bad_input(12)
@pytest.mark.parametrize(
    "bad",
    [
        GOOD.upper(),
        "{" + GOOD + "}",
        GOOD.replace("-", ""),
        "urn:uuid:" + GOOD,
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        GOOD + "\n",
        " " + GOOD,
        GOOD + "0",
        GOOD[:-1],
        GOOD.replace("0", "\N{ARABIC-INDIC DIGIT ZERO}"),
        GOOD.replace("-8def", "-cdef"),
        "x" * 1000,
        "",
        None,
        UUID(GOOD),
        GOOD.encode(),
        1,
        Text(GOOD),
    ],
    ids=repr,
)
def test_any_other_spelling_is_rejected_naming_the_field(bad: object) -> None:
    assert not is_id(bad)
    with pytest.raises(InvalidInput) as caught:
        parse_notification_id(bad)
    assert (caught.value.code, caught.value.field) == ("notification.bad_id", "notification_id")


def test_valid_id_is_returned_unchanged() -> None:
    assert parse_notification_id(GOOD) == GOOD
