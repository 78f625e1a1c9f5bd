"""Names, passwords, waits and the ends of sessions, as rules."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.core.login import (
    PASSWORD_BYTES_MAX,
    WITH_ACCOUNT,
    WITH_NETWORK,
    Patience,
    Tally,
    charged,
    check_password,
    check_user_name,
    delay,
    given_back,
    has_ended,
)

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)


@pytest.mark.parametrize("name", ["anna", "a", "7", "anna.b@example.org", "erp-bridge_2", "a" * 64])
def test_valid_name_is_accepted(name: str) -> None:
    assert check_user_name(name) == name


@pytest.mark.bad_input(58)
@pytest.mark.parametrize(
    "name", ["", "Anna", "аnna", "anna ", "an na", "-anna", "a" * 65, "an\x00na", "änne", "anna\n", None, 7, b"anna"]
)
def test_ambiguous_name_is_rejected(name: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_user_name(name)
    assert (refused.value.code, refused.value.field) == ("user.name", "name")


@pytest.mark.parametrize("password", ["twelve chars", "пароль из слов", "x y z a b c d e", "anna and a long sentence"])
def test_long_password_of_any_characters_is_accepted(password: str) -> None:
    assert check_password(password, "anna") == password


@pytest.mark.parametrize(
    "password",
    ["", "eleven char", "aaaaaaaaaaaaaaaa", "anna anna 123", "x1y2z" * 1000, "\ud800 a lone surrogate", "a" * 2000],
)
def test_password_that_breaks_a_rule_is_rejected(password: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_password(password, "anna")
    assert (refused.value.code, refused.value.field) == ("password.rule", "password")


def test_the_longest_password_is_counted_in_bytes() -> None:
    assert check_password("äöüßéè" * (PASSWORD_BYTES_MAX // 12), "anna")
    with pytest.raises(InvalidInput, match="1024 bytes"):
        check_password("äöüßéè" * (PASSWORD_BYTES_MAX // 12 + 1), "anna")


@pytest.mark.threat(13)
@given(st.sampled_from([WITH_ACCOUNT, WITH_NETWORK]), st.integers(1, 10_000))
def test_a_wait_never_shrinks_with_another_failure_and_never_passes_the_longest(
    patience: Patience, failures: int
) -> None:
    assert timedelta(0) <= delay(failures, patience) <= delay(failures + 1, patience) <= patience.longest
    assert (delay(failures, patience) == timedelta(0)) == (failures <= patience.free)


@pytest.mark.threat(13)
def test_a_thousand_guesses_take_more_than_three_days() -> None:
    tally, now = None, NOW
    for _ in range(1000):
        tally = charged(tally, WITH_ACCOUNT, now)
        now = max(now, tally.free_at)
    assert now - NOW > timedelta(days=3)


def test_failures_are_reset_after_a_quiet_hour_and_not_before() -> None:
    tally = Tally(9, NOW, NOW)
    assert charged(tally, WITH_ACCOUNT, NOW + timedelta(minutes=59)).failures == 10
    assert charged(tally, WITH_ACCOUNT, NOW + timedelta(hours=1)).failures == 1


def test_charge_for_a_successful_login_is_returned() -> None:
    before = Tally(WITH_NETWORK.free, NOW, NOW)
    after = given_back(charged(before, WITH_NETWORK, NOW), NOW)
    assert (after.failures, after.wait(NOW)) == (before.failures, timedelta(0))
    assert given_back(Tally(0, NOW, NOW), NOW).failures == 0


@pytest.mark.threat(12)
@pytest.mark.parametrize(
    ("unused_s", "left_s", "is_over"), [(0, 1, False), (59, 1, False), (60, 100, True), (0, 0, True), (0, -5, True)]
)
def test_session_ends_when_idle_or_old(unused_s: int, left_s: int, is_over: bool) -> None:
    last, end = NOW - timedelta(seconds=unused_s), NOW + timedelta(seconds=left_s)
    assert has_ended(NOW, last, end, timedelta(minutes=1)) == is_over
