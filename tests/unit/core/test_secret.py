"""A secret never shows itself, and is taken out of what comes back from outside."""

import base64
import copy
import json
import pickle
from dataclasses import asdict, dataclass
from urllib.parse import quote_plus

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Scrubber, Secret, check_secret

CANARY = "kanarie-7f3a&b/c+d é"


@dataclass(frozen=True)
class Holder:
    password: Secret


@pytest.mark.req("ADP-13")
@pytest.mark.threat(23)
@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        "{}".format,
        "{!r:>40}".format,
        "{:>40}".format,
        lambda s: f"{[s]} { ({'password': s}) } {Holder(s)}",
        lambda s: str(ValueError(s)),
        lambda s: "%s %r" % (s, s),  # noqa: UP031
        lambda s: json.dumps({"password": s}, default=str),
        lambda s: structlog.processors.KeyValueRenderer()(None, "", {"password": s, "settings": {"password": s}}),
        lambda s: structlog.processors.JSONRenderer(default=str)(None, "", {"settings": {"password": s}}),
        lambda s: str(asdict(Holder(s))),
    ],
)
def test_every_display_of_a_secret_shows_stars(show: object) -> None:
    shown = show(Secret(CANARY))  # type: ignore[operator]
    assert "***" in shown
    assert "kanarie" not in shown


def test_a_secret_is_revealed_compared_and_copied() -> None:
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    assert secret == Secret(CANARY) != Secret("other")
    assert secret != CANARY
    assert len({secret, Secret(CANARY), Secret("other")}) == 2
    assert copy.deepcopy({"password": secret})["password"] is secret
    assert copy.copy(secret) is secret


def test_a_secret_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(Secret(CANARY))


@pytest.mark.bad_input(28)
@pytest.mark.parametrize("value", [7, None, ["kanarie"], "", "kanarie\x00", "kanarie\ud800", "kanarie" * 1000])
def test_invalid_secret_is_rejected_without_repeating_it(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_secret(value, "secrets.password")
    assert refused.value.field == "secrets.password"
    assert "kanarie" not in str(refused.value)


@pytest.mark.threat(23)
@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"500 what is {CANARY}?",
        repr(CANARY),
        f"grant_type=client_credentials&client_secret={quote_plus(CANARY)}",
        "334 " + base64.b64encode(CANARY.encode()).decode(),
        "AUTH PLAIN " + base64.b64encode(b"\0ann\0" + CANARY.encode()).decode(),
        "AUTH PLAIN " + base64.urlsafe_b64encode(b"\0anna\0" + CANARY.encode()).decode(),
        "AUTH PLAIN " + base64.b64encode(b"\0annas\0" + CANARY.encode() + b"\x01\x01").decode(),
    ],
)
def test_known_secret_is_removed_from_a_text_in_every_encoding(text: str) -> None:
    shown = Scrubber([Secret(CANARY)])(text)
    assert "***" in shown
    for part in (CANARY, quote_plus(CANARY), "kanarie", base64.b64encode(CANARY.encode()).decode()[4:-4]):
        assert part not in shown


@given(st.text(min_size=4, max_size=40), st.binary(max_size=20), st.binary(max_size=20))
def test_base64_that_contains_a_secret_reveals_no_part_of_it(text: str, before: bytes, after: bytes) -> None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return
    encoded = base64.b64encode(before + raw + after).decode()
    assert "***" in Scrubber([Secret(text)])(encoded)


@pytest.mark.threat(23)
@pytest.mark.parametrize("secret", ["kanarie\"'\\\t1", "kanarie'2", 'kanarie"3', "kanarie é 4", "kanarie\\5"])
def test_secret_in_a_logged_exception_is_removed(secret: str) -> None:
    told = f"Traceback …\nKeyError: {secret!r}"
    for line in (told, json.dumps({"exception": told}), json.dumps(told, ensure_ascii=False), repr(told)):
        assert "kanarie" not in Scrubber([Secret(secret)])(line)


@pytest.mark.threat(23)
def test_credentials_of_a_header_are_removed_without_their_scheme_too() -> None:
    shown = Scrubber([Secret("Bearer kanarie.im.kopf")])
    assert shown('{"detail": "kanarie.im.kopf is invalid"}') == '{"detail": "*** is invalid"}'
    assert shown("Authorization: Bearer kanarie.im.kopf") == "Authorization: ***"
    encoded = base64.b64encode(b"kanarie.im.kopf").decode()
    assert encoded[4:-4] not in shown(f"token {encoded}")
    assert Scrubber([Secret("Bearer short")])("short of breath") == "short of breath"


def test_text_without_secrets_is_unchanged() -> None:
    text = "550 5.1.1 no such user <ann@example.org>"
    assert Scrubber()(text) == text
    assert Scrubber([Secret(CANARY), Secret("x9")])(text) == text


def test_nested_secrets_are_both_removed() -> None:
    assert Scrubber([Secret("pass"), Secret("password")])("the password") == "the ***"
