"""Which errors are the same error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.search.fingerprint import FINGERPRINT_LENGTH_MAX, fingerprint, fingerprint_key, is_fingerprint_key


@pytest.mark.parametrize(
    ("error", "general"),
    [
        ("550 5.1.1 no such user", "550 5.1.1 no such user"),
        ("a@example.org: 550 5.1.1 no such user", "<address>: 550 5.1.1 no such user"),
        ("<a@example.org>: 550-5.1.1 unknown", "<address>: 550-5.1.1 unknown"),
        ("451 4.7.1 try again in 300 seconds", "451 4.7.1 try again in # seconds"),
        ("HTTP 404", "HTTP 404"),
        ("answered HTTP 503 after 1.5 s", "answered HTTP 503 after # s"),
        ("cannot connect to 10.0.0.7:25", "cannot connect to <ip>"),
        ("cannot connect to [2001:db8::1]:25", "cannot connect to <ip>"),
        ("POST https://hooks.example.org/a/b?c=d refused", "POST <url> refused"),
        ("queued as 4bXyZ0123q", "queued as <id>"),
        ("message 0198c8a0-0000-7000-8000-000000000001 is too large", "message <id> is too large"),
        ("not before 2026-11-15T08:00:00.123Z", "not before <time>"),
        ("held longer than 5 days, 0:00:00: no route", "held longer than # days, #: no route"),
        ("  two   spaces\tand a tab ", "two spaces and a tab"),
    ],
)
def test_fingerprint_removes_details_of_a_single_notification(error: str, general: str) -> None:
    assert fingerprint(error) == general


def test_several_targets_with_the_same_error_have_one_fingerprint() -> None:
    one = fingerprint("a@example.org: 550 no such user")
    assert fingerprint("14 targets (b@example.org, c@example.org and 12 more): 550 no such user") == one
    assert fingerprint("b@example.org: 550 no such user; 2 targets (c@d.example, e@d.example): 550 no such user") == one
    quoted = fingerprint("a@example.org: 550 5.1.1 <a@example.org>: rejected")
    assert fingerprint("2 targets (a@b.example, c@b.example): 550 5.1.1 <a@b.example>: rejected") == quoted
    mixed = fingerprint("a@example.org: 550 no such user; b@example.org: 552 too large")
    assert mixed == "<address>: 550 no such user; <address>: 552 too large"
    assert mixed != one


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("550 5.1.1 no such user", "550 5.7.1 relaying denied"),
        ("HTTP 404", "HTTP 410"),
        ("450 mailbox busy", "550 mailbox busy"),
        ("cannot connect", "connection reset"),
    ],
)
def test_codes_and_words_separate_errors(first: str, second: str) -> None:
    assert fingerprint_key(first) != fingerprint_key(second)


@given(st.text())
def test_every_error_has_a_bounded_fingerprint_and_a_key_that_can_be_typed(error: str) -> None:
    assert len(fingerprint(error)) <= FINGERPRINT_LENGTH_MAX
    assert is_fingerprint_key(fingerprint_key(error))


@pytest.mark.parametrize("text", ["", "0123456789a", "0123456789abc", "0123456789AB", "0123456789ag", "0123456789ab\n"])
def test_any_other_text_is_not_a_key(text: str) -> None:
    assert not is_fingerprint_key(text)


def test_long_hostile_error_is_processed_quickly() -> None:
    """Every pattern is bounded; what the world says is cut to two kilobytes before it gets here."""
    for error in ("a" * 2048, "@" * 2048, "a@" * 1024, "1." * 1024, "-" * 2048, "[" + ":" * 2046, "0" * 2048):
        fingerprint(error)
