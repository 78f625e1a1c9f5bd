"""What makes two submissions the same."""

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Provenance, Severity, Submission, digest, list_key

GIVEN = Submission(NotificationId("019a8b3c-0000-7000-8000-000000000001"), "ops", "Pump 3", "No flow", Provenance("p7"))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def with_content(site: str, list_name: str, subject: str, body: str) -> Submission:
    return Submission(GIVEN.notification_id, list_name, subject, body, Provenance(site))


@pytest.mark.req("DEC-12")
@given(st.tuples(texts, texts, texts, texts), st.tuples(texts, texts, texts, texts))
def test_digests_are_equal_exactly_when_site_list_subject_and_body_are(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    assert (digest(with_content(*one)) == digest(with_content(*other))) == (one == other)


@pytest.mark.req("DEC-12")
@given(st.tuples(texts, texts, texts, texts), st.integers(0, 2))
def test_moving_a_letter_to_the_next_field_changes_the_digest(content: tuple[str, str, str, str], at: int) -> None:
    moved = list(content)
    moved[at], moved[at + 1] = content[at] + content[at + 1], ""
    if tuple(moved) != content:
        assert digest(with_content(*moved)) != digest(with_content(*content))


@pytest.mark.req("DEC-12")
def test_provenance_and_time_of_the_site_are_not_part_of_the_content() -> None:
    told = replace(GIVEN, provenance=Provenance("p7", "line-1", "pumps.py", "run-1", "run-0"), enqueued_at="yesterday")
    assert digest(told) == digest(GIVEN)


def test_digest_equals_the_documented_one() -> None:
    parts = (b"p7", b"ops", b"Pump 3", b"No flow")
    assert digest(GIVEN) == sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).digest()


@pytest.mark.req("CHN-01")
def test_alarm_fields_are_part_of_the_digest_only_if_given() -> None:
    parts = (b"p7", b"ops", b"Pump 3", b"No flow", b"severity", b"info", b"incident", b"x", b"is_cleared", b"true")
    alarm = replace(GIVEN, severity=Severity.INFO, incident="x", is_cleared=True)
    assert digest(alarm) == sha256(b"".join(len(p).to_bytes(8, "big") + p for p in parts)).digest()
    ones = [replace(GIVEN, severity=Severity.INFO), replace(GIVEN, incident="info"), replace(GIVEN, is_cleared=True)]
    assert len({digest(one) for one in [*ones, alarm, GIVEN]}) == 5


def test_the_delivery_key_of_a_list() -> None:
    assert list_key("ops") == "list:ops"
