"""The rules for text, the same at a site and at central."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core import text
from fieldpost.core.errors import InvalidInput

Check = Callable[[object], str]


def check_script(value: object) -> str:
    return text.check_label(value, "script")


# Each rule, the field that it names and its limit in bytes.
CHECKS: list[tuple[Check, str, int]] = [
    (text.check_subject, "subject", 998),
    (text.check_body, "body", 256 * 1024),
    (text.check_list_name, "list_name", 128),
    (check_script, "script", 256),
]
NAMES = CHECKS[2:]
all_checks = pytest.mark.parametrize(("check", "field", "limit"), CHECKS, ids=[field for _, field, _ in CHECKS])
names = pytest.mark.parametrize(("check", "field", "limit"), NAMES, ids=[field for _, field, _ in NAMES])


class Text(str):
    __slots__ = ()


def refused(check: Check, value: object) -> tuple[str, str | None]:
    with pytest.raises(InvalidInput) as caught:
        check(value)
    assert caught.value.field is not None
    assert caught.value.field in caught.value.message, "the sentence names the field too"
    return caught.value.code, caught.value.field


@pytest.mark.req("DEC-36")
@pytest.mark.bad_input(5)
@all_checks
@pytest.mark.parametrize("letter", ["x", "é", "€", "🚨"])
def test_the_limit_is_in_bytes_and_exact(check: Check, field: str, limit: int, letter: str) -> None:
    size = len(letter.encode())
    fitting = letter * (limit // size) + "x" * (limit % size)
    assert len(fitting.encode()) == limit
    assert check(fitting) == fitting
    assert refused(check, fitting + "x") == ("text.too_long", field)


@pytest.mark.req("DEC-36")
@pytest.mark.bad_input(3)
@all_checks
@pytest.mark.parametrize("bad", ["\x00", "a\x00b", "x\x00"])
def test_nul_is_rejected(check: Check, field: str, limit: int, bad: str) -> None:
    assert refused(check, bad) == ("text.nul", field)


@pytest.mark.req("DEC-36")
@pytest.mark.bad_input(4)
@all_checks
@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb", "b\udc80"])
def test_lone_surrogate_is_rejected(check: Check, field: str, limit: int, bad: str) -> None:
    assert refused(check, bad) == ("text.surrogate", field)


@pytest.mark.bad_input(6)
@all_checks
@pytest.mark.parametrize("bad", [None, b"ops", 7, ["ops"], {"a": 1}, Text("ops")], ids=repr)
def test_only_a_true_str_is_text(check: Check, field: str, limit: int, bad: object) -> None:
    assert refused(check, bad) == ("text.type", field)


@pytest.mark.bad_input(6)
def test_str_subclass_is_rejected_even_after_an_equal_str_was_accepted() -> None:
    assert text.check_list_name("operators") == "operators"
    assert refused(text.check_list_name, Text("operators")) == ("text.type", "list_name")


@pytest.mark.req("DEC-36")
@pytest.mark.bad_input(2)
@pytest.mark.parametrize("mark", list("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), ids=ascii)
def test_subject_contains_no_kind_of_line_break(mark: str) -> None:
    assert len(f"a{mark}b".splitlines()) == 2
    for subject in (f"a{mark}b", mark, f"a{mark}", "a\r\nBcc: x@example.org"):
        assert refused(text.check_subject, subject) == ("text.line_break", "subject")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_subject_is_accepted_exactly_if_it_is_one_line(subject: str) -> None:
    if len(subject.splitlines()) > 1 or subject.splitlines() != [subject] * bool(subject):
        assert refused(text.check_subject, subject) == ("text.line_break", "subject")
    else:
        assert text.check_subject(subject) == subject


def test_a_subject_may_be_empty_and_a_body_may_have_lines() -> None:
    assert text.check_subject("") == ""
    assert text.check_body("") == ""
    assert text.check_body("one\r\ntwo\n\n.\n") == "one\r\ntwo\n\n.\n"


@pytest.mark.bad_input(1)
@names
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("", "text.empty"),
        ("   ", "text.empty"),
        ("a\nb", "text.control"),
        ("a\tb", "text.control"),
        ("a\x7fb", "text.control"),
        ("a\x9fb", "text.control"),
        ("a\u2028b", "text.control"),
        (" ops", "text.space"),
        ("ops ", "text.space"),
        ("ops\N{NO-BREAK SPACE}", "text.space"),
        ("x" * 10_000, "text.too_long"),
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_a_name_is_short_printable_and_without_spaces_at_its_ends(
    check: Check, field: str, limit: int, bad: str, code: str
) -> None:
    assert refused(check, bad) == (code, field)


@names
@pytest.mark.parametrize("good", ["ops", "Werk 3 / Nacht", "運転員", "a" * 128])
def test_a_name_may_be_in_any_script(check: Check, field: str, limit: int, good: str) -> None:
    assert check(good) == good


def test_text_accepted_by_one_rule_is_checked_again_by_another() -> None:
    long = "x" * 200
    assert check_script(long) == long
    assert refused(text.check_list_name, long) == ("text.too_long", "list_name")


# cut()


@given(st.text(max_size=300), st.integers(3, 200))
def test_truncate_gives_what_both_stores_can_store(given_text: str, limit: int) -> None:
    made = text.truncate(given_text, limit)
    assert len(made.encode()) <= limit
    assert "\x00" not in made


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300), st.integers(3, 200))
def test_truncate_keeps_short_text_and_marks_the_rest(given_text: str, limit: int) -> None:
    made = text.truncate(given_text, limit)
    if len(given_text.encode()) <= limit:
        assert made == given_text
    else:
        assert made.endswith("…")
        assert given_text.startswith(made[:-1])


def test_truncate_never_splits_a_character() -> None:
    assert text.truncate("€" * 10, 10) == "€€…"
    assert text.truncate("a\x00b\udc80c") == "a\N{REPLACEMENT CHARACTER}b?c"


@pytest.mark.parametrize("bad", [".", ".."])
def test_name_of_dots_is_rejected_in_a_path(bad: str) -> None:
    assert refused(lambda value: text.check_path_name(str(value), "name"), bad) == ("text.dots", "name")
    assert text.check_path_name("...", "name") == "..."
