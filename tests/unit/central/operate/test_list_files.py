"""Lists as files: out and back unchanged, nothing that a spreadsheet would run, errors that name the line."""

import csv
import io
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.operate.list_spec import check
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import NotificationList
from fieldpost.core.text import check_label
from fieldpost.front.files.lists import from_csv, from_json, to_csv, to_json

ADAPTERS = {"email": EmailAdapter()}
FIRST = [*"=+-@'|\\;,\"\t ", "＝", "a", "é"]


def is_name(text: str) -> bool:
    try:
        check_label(text, "name")
    except InvalidInput:
        return False
    return len(text.encode()) <= 128


names = st.builds(lambda first, rest: first + rest, st.sampled_from(FIRST), st.text(max_size=12)).filter(is_name)
addresses = st.builds(
    lambda first, rest: f"{first}{rest}@x.example", st.sampled_from("=+-'a"), st.text("abc=+-'", max_size=5)
)
lists = st.builds(
    NotificationList,
    name=names,
    type=st.just("email"),
    channel_name=st.none() | names,
    targets=st.lists(addresses, min_size=1, max_size=4, unique_by=str.casefold).map(tuple),
    park_uncertain=st.booleans(),
    retry=st.none() | st.just(Fixed(timedelta(seconds=90), 5, 0.25)),
    allowed_sites=st.none() | st.lists(names, min_size=1, max_size=3, unique=True).map(sorted).map(tuple),
)


@given(st.lists(lists, min_size=1, max_size=3, unique_by=lambda one: one.name))
def test_exported_lists_are_imported_unchanged(given_: list[NotificationList]) -> None:
    assert [check(spec, ADAPTERS) for spec in from_csv(to_csv(given_))] == given_
    assert [check(spec, ADAPTERS) for spec in from_json(to_json(given_))] == given_


@given(st.lists(lists, min_size=1, max_size=3, unique_by=lambda one: one.name))
def test_no_cell_of_an_export_is_a_formula(given_: list[NotificationList]) -> None:
    for row in csv.reader(io.StringIO(to_csv(given_), newline="")):
        assert not [cell for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r", "＝"))]


def test_name_that_is_a_formula_is_written_as_text() -> None:
    evil = NotificationList('=HYPERLINK("http://evil.example")', "email", targets=("+a@x.example", "-b@x.example"))
    text = to_csv([evil])
    assert '"\'=HYPERLINK(""http://evil.example"")",email' in text
    assert "'+a@x.example" in text
    (spec,) = from_csv(text)
    assert (spec.name, list(spec.targets)) == (evil.name, ["+a@x.example", "-b@x.example"])


@pytest.mark.parametrize(
    "text",
    [
        "list,target\nops,a@x.example\nops,b@x.example\n",
        "\ufefftarget;list\r\na@x.example;ops\r\nb@x.example;ops\r\n",
        "List, Target \nops,a@x.example\n\n,\nops,b@x.example",
    ],
)
def test_file_written_by_a_spreadsheet_is_read(text: str) -> None:
    (spec,) = from_csv(text)
    found = check(spec, ADAPTERS)
    assert (found.name, found.type, found.targets) == ("ops", "email", ("a@x.example", "b@x.example"))
    assert (found.channel_name, found.retry, found.allowed_sites, found.park_uncertain) == (None, None, None, False)


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("", "line 1", "missing columns: list, target"),
        ("list\nops\n", "line 1", "missing columns: target"),
        ("list,target,colour\nops,a@x.example,red\n", "line 1", "unknown column 'colour'"),
        ("list,target,target\nops,a@x.example,b@x.example\n", "line 1", "twice"),
        ("list,target\nops\n", "line 2", "1 cells, expected 2"),
        ("list,target\nops,a@x.example,b@x.example\n", "line 2", "3 cells"),
        ("list,target,park_uncertain\nops,a@x.example,perhaps\n", "line 2", "true or false"),
        ("list,target,retry\nops,a@x.example,fixed:1s:3\nops,b@x.example,fixed:2s:3\n", "line 3", "those in line 2"),
        (f"list,target\nops,{'x' * 200_000}\n", "line 2", "field larger"),
    ],
)
def test_invalid_csv_file_is_rejected_naming_the_line(text: str, field: str, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_csv(text)
    assert refused.value.field == field
    assert says in refused.value.message


@pytest.mark.bad_input(20, 21)
def test_bad_target_in_a_file_is_rejected_by_the_shared_validator_naming_the_line() -> None:
    (spec,) = from_csv('list,target\nops,a@x.example\nops,"a@b.c\r\nRCPT TO:<x@y>"\n')
    with pytest.raises(InvalidInput) as refused:
        check(spec, ADAPTERS)
    assert refused.value.field == "line 4.target"
    (spec,) = from_json('{"lists": [{"name": "ops", "targets": ["a@x.example", "a@b@c"]}]}')
    with pytest.raises(InvalidInput) as refused:
        check(spec, ADAPTERS)
    assert refused.value.field == "lists[0].targets[1]"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"lists": {}}', '{"lists": [{"name": "x"}]}', '{"lists": [], "x": 1}']
)
def test_json_file_of_another_shape_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_json(text)
    assert refused.value.code == "import.json"
