"""CSV cells that no spreadsheet evaluates, in any locale."""

import csv
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.front.files.csv_cells import from_cell, to_cell

TEXTS = st.text(alphabet="=+-@;\t\r\n'a\"", max_size=12)


@pytest.mark.threat(38)
@pytest.mark.parametrize("value", ["=1", "\n=1", "a;=1", "a\t+1", "a\r@x", "a\n-1", ";;=1", "a;\t=1"])
def test_no_locale_starts_a_cell_with_a_formula(value: str) -> None:
    assert not any(part[:1] in "=+-@" for part in re.split("[;\t\r\n]", to_cell(value)) if part)
    assert from_cell(to_cell(value)) == value


@pytest.mark.threat(38)
@given(TEXTS)
def test_a_round_trip_changes_nothing(value: str) -> None:
    assert from_cell(to_cell(value)) == value
    parts = re.split("[;\t\r\n]", to_cell(value))
    assert not [part for part in parts if part.startswith(("=", "+", "-", "@"))]


def test_an_ordinary_cell_stays_as_it_is() -> None:
    assert to_cell("a-b; c@d.example, it's") == "a-b; c@d.example, it's"
    assert next(csv.reader([to_cell("a;=1")], delimiter=";")) == ["a", "'=1"]
