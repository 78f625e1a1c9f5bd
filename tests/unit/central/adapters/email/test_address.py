"""Which mail addresses are taken, in which form, and which are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.adapters.email.address import check_address, needs_utf8
from fieldpost.core.errors import InvalidInput

LONG_DOMAIN = ".".join(["d" * 60] * 4)

TAKEN = [
    ("ops@plant.example", "ops@plant.example"),
    ("first.last+tag@plant.example", "first.last+tag@plant.example"),
    ("Ops@Plant.EXAMPLE", "Ops@plant.example"),
    ("o'neill!#$%&*/=?^_`{|}~-@plant.example", "o'neill!#$%&*/=?^_`{|}~-@plant.example"),
    ("root@localhost", "root@localhost"),
    ("a" * 64 + "@plant.example", "a" * 64 + "@plant.example"),
    ("ops@" + "d" * 63 + ".example", "ops@" + "d" * 63 + ".example"),
    ("ops@Müller.example", "ops@xn--mller-kva.example"),
    ("ops@xn--mller-kva.example", "ops@xn--mller-kva.example"),
    ("ops@mu\u0308ller.example", "ops@xn--mller-kva.example"),
    ("用户@例え.jp", "用户@xn--r8jz45g.jp"),
    ("jo\u0308rg@plant.example", "jörg@plant.example"),
]

REFUSED = [
    ("", "exactly one @"),
    ("ops", "exactly one @"),
    ("a@b@c", "exactly one @"),
    ("@plant.example", "nothing before the @"),
    ("ops@", "empty label"),
    ("a@b.c\r\nRCPT TO:<x@y>", "control"),
    ("a@b.c\nx", "control"),
    ("a\x00@b.c", "control"),
    ("a@b.c\x7f", "control"),
    ("a@b\u202e.c", "control"),
    ("a@b.c\u2028", "space"),
    ("a b@b.c", "space"),
    (" a@b.c", "space"),
    ("a@b.c\u00a0", "space"),
    ('"quoted local"@b.c', "space"),
    ('"quoted"@b.c', "quoted local part"),
    ('"Bob" <bob@plant.example>', "space"),
    ("Bob<bob@plant.example>", "invalid character before the @"),
    ("<bob@plant.example>", "invalid character before the @"),
    ("bob@plant.example>", "invalid domain label"),
    ("alice@example.org)bob@evil", "exactly one @"),
    ("alice(comment)@example.org", "invalid character before the @"),
    ("alice@example.org(comment)", "invalid domain label"),
    ("a,b@plant.example", "invalid character before the @"),
    ("a;b@plant.example", "invalid character before the @"),
    ("a:b@plant.example", "invalid character before the @"),
    ("a\\b@plant.example", "invalid character before the @"),
    ("a@[127.0.0.1]", "address literal"),
    ("a@[IPv6:::1]", "address literal"),
    ("a@127.0.0.1", "not a number"),
    ("a@b.c.", "end with a dot"),
    ("a@.b.c", "empty label"),
    ("a@b..c", "empty label"),
    (".a@b.c", "a misplaced dot"),
    ("a.@b.c", "a misplaced dot"),
    ("a..b@b.c", "a misplaced dot"),
    ("a" * 65 + "@plant.example", "more than 64 bytes"),
    ("ä" * 33 + "@plant.example", "more than 64 bytes"),
    ("a" * 20 + "@" + LONG_DOMAIN, "at most 254 bytes"),
    ("a@" + LONG_DOMAIN + ".example.org.more", "over 253 bytes"),
    ("a@" + "d" * 64 + ".example", "label over 63"),
    ("a@-b.example", "invalid domain label"),
    ("a@b-.example", "invalid domain label"),
    ("a@under_score.example", "invalid domain label"),
    ("a@straße.example", "ambiguous"),
    ("a@ｐlant.example", "ambiguous"),
    ("a@plant。example", "ambiguous"),
    ("a@☃\ufe0f.\U000e0001x", "control"),
    ("a\ud800@b.c", "control"),
    (b"a@b.c", "must be a str"),
    (None, "must be a str"),
]


@pytest.mark.parametrize(("given_address", "kept"), TAKEN)
def test_valid_address_is_stored_in_canonical_form(given_address: str, kept: str) -> None:
    assert check_address(given_address) == kept
    assert check_address(kept) == kept


@pytest.mark.bad_input(20, 21, 25)
@pytest.mark.parametrize(("address", "rule"), REFUSED)
def test_invalid_address_is_rejected_with_the_broken_rule(address: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule) as caught:
        EmailAdapter().check_target(address)
    assert caught.value.field == "address"
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


def test_only_a_local_part_beyond_ascii_needs_smtputf8() -> None:
    assert needs_utf8(check_address("jörg@plant.example"))
    assert not needs_utf8(check_address("joerg@müller.example"))


@given(st.text(max_size=80) | st.from_regex(r"[\w.\"<>()\[\]\\, -]{0,20}@[\w.\[\]-]{0,20}", fullmatch=True))
def test_accepted_address_is_safe_in_a_command_and_canonical(text: str) -> None:
    try:
        address = check_address(text)
    except InvalidInput:
        return
    assert check_address(address) == address
    assert address.count("@") == 1
    assert not set(address) & set('\r\n\t <>()[]\\,;:"')
    assert address.partition("@")[2].isascii()
    assert len(address.encode()) <= 254
