"""Digests over ranges of ids."""

import pytest

from fieldpost.core.pair.range_digest import Cell, digest_range

ROWS: list[list[Cell]] = [["a", 1, None, b"x"], ["b", 2, "y", b""]]


def test_equal_rows_have_equal_digests() -> None:
    assert digest_range("", None, ROWS) == digest_range("", None, [list(row) for row in ROWS])
    assert digest_range("", None, ROWS).rows == 2


@pytest.mark.parametrize(
    "rows",
    [
        [["a", 1, None, b"x"]],
        [["a", 1, None, b"x"], ["b", 2, "y", None]],
        [["a", "1", None, b"x"], ["b", 2, "y", b""]],
        [["a", 1, None, b"xb"], ["", 2, "y", b""]],
        [["a", 1, None, "x"], ["b", 2, "y", b""]],
    ],
)
def test_any_other_rows_have_another_digest(rows: list[list[Cell]]) -> None:
    assert digest_range("", None, rows).digest != digest_range("", None, ROWS).digest
