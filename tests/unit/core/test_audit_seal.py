"""Seals over the audit log: canonical bytes, gaps of late transactions, and the differences a verification names."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.audit_seal import (
    GAP_KEPT,
    Gap,
    SealedEntry,
    StoredEntry,
    Tampering,
    canonical_bytes,
    compare_entries,
    merge,
    new_gaps,
    numbers_in,
    pack,
    remaining_gaps,
    unpack,
)

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
VALUE = st.none() | st.text(max_size=6) | st.integers(0, 999)


def test_canonical_bytes_have_the_documented_form() -> None:
    given_values = ["a:b", None, 12, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), {"b": 1, "a": "é"}, ""]
    assert canonical_bytes(given_values) == '3:a:b-2:127:100000016:{"a":"é","b":1}0:'.encode()


@given(st.lists(VALUE, min_size=3, max_size=3), st.lists(VALUE, min_size=3, max_size=3))
def test_two_entries_have_the_same_bytes_only_if_they_are_equal(one: list[object], other: list[object]) -> None:
    texts = [[None if v is None else str(v) for v in values] for values in (one, other)]
    assert (canonical_bytes(one) == canonical_bytes(other)) == (texts[0] == texts[1])


def test_packed_entries_come_back() -> None:
    entries = [SealedEntry(1, 5, bytes(32)), SealedEntry(2**63, 2**62, b"\xff" * 32)]
    assert unpack(pack(entries)) == entries


@given(st.dictionaries(st.integers(1, 40), st.integers(0, 3)))
def test_merged_entries_are_in_the_order_of_their_numbers(part_of: dict[int, int]) -> None:
    """Each number is in one part."""
    parts = [sorted(number for number in part_of if part_of[number] == part) for part in range(4)]
    merged = merge([pack(SealedEntry(number, 7, bytes(32)) for number in part) for part in parts])
    expected = sorted(part_of)
    assert [entry.sequence for entry in unpack(merged)] == expected
    assert list(numbers_in(merged)) == expected


@given(st.integers(0, 5), st.sets(st.integers(6, 30)))
def test_gaps_and_found_numbers_are_all_numbers_after_the_sealed_ones(high: int, found: set[int]) -> None:
    missing = {n for gap in new_gaps(high, sorted(found), 99, NOW) for n in range(gap.first, gap.last + 1)}
    assert missing == set(range(high + 1, max(found, default=high) + 1)) - found


def test_missing_numbers_are_gaps() -> None:
    assert [(g.first, g.last) for g in new_gaps(3, [4, 7, 8, 10], 99, NOW)] == [(5, 6), (9, 9)]
    assert [(g.first, g.last) for g in new_gaps(3, [6], 99, NOW)] == [(4, 5)]
    assert new_gaps(3, [], 99, NOW) == []


@pytest.mark.parametrize(
    ("ended_to", "later", "is_kept"),
    [
        (98, GAP_KEPT * 2, True),  # a transaction from before the gap still runs
        (99, GAP_KEPT / 2, True),  # all have ended, but one may have had no number in the snapshot yet
        (99, GAP_KEPT * 2, False),
    ],
)
def test_gap_closes_once_it_cannot_be_filled(ended_to: int, later: timedelta, is_kept: bool) -> None:
    gaps = new_gaps(0, [3], 99, NOW)
    assert bool(remaining_gaps(gaps, [], ended_to, NOW + later)) is is_kept


@given(st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)))
def test_a_gap_loses_the_numbers_found_in_it(missing: set[int], found: set[int]) -> None:
    gaps = [Gap(n, n, 9, 0) for n in sorted(missing - {20, 21, 22})] + [Gap(20, 22, 9, 0)]
    left = remaining_gaps(gaps, sorted(found), 0, NOW)
    assert {n for g in left for n in range(g.first, g.last + 1)} == (missing | {20, 21, 22}) - found


def seal(*numbers: int) -> dict[int, tuple[int, SealedEntry]]:
    return {n: (1, SealedEntry(n, n, bytes([n]) * 32)) for n in numbers}


def row(number: int, content: int | None = None) -> StoredEntry:
    return StoredEntry(number, f"event-{number}", bytes([content or number]) * 32)


@pytest.mark.threat(9)
def test_each_kind_of_tampering_is_named() -> None:
    sealed = seal(1, 2, 3)
    kinds = {
        "nothing": [row(1), row(2), row(3)],
        "edited": [row(1), row(2, 99), row(3)],
        "removed": [row(1), row(3)],
        "inserted": [row(1), row(2), row(3), row(4)],
        "reordered": [row(1), row(2, 3), row(3, 2)],
    }
    found = {name: [f.kind for f in compare_entries(sealed, stored, None, ())] for name, stored in kinds.items()}
    assert found == {
        "nothing": [],
        "edited": [Tampering.EDITED],
        "removed": [Tampering.REMOVED],
        "inserted": [Tampering.INSERTED],
        "reordered": [Tampering.REORDERED, Tampering.REORDERED],
    }


def test_purged_entries_and_open_gaps_are_not_tampering() -> None:
    purged_to = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=2)
    assert compare_entries(seal(1, 2, 3), [row(2), row(3)], purged_to, ()) == []
    assert [f.sequence for f in compare_entries(seal(1, 2, 3), [row(1), row(3)], purged_to, ())] == [2]
    assert compare_entries(seal(1, 3), [row(1), row(2), row(3)], None, [Gap(2, 2, 9, 0)]) == []
