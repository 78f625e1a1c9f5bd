"""Sealing and opening secrets."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.central.secrets.keyring import (
    Keyring,
    SecretKey,
    SecretOwner,
    SecretUnreadable,
    key_id_of,
    key_text,
    parse_keys,
)
from fieldpost.core.errors import ConfigError, Conflict
from fieldpost.core.lists import Channel
from fieldpost.core.secret import Secret

OLD, NEW = SecretKey.of(b"o" * 32), SecretKey.of(b"n" * 32)
MAIL = SecretOwner("channel", "mail", "mail")
NONCE = bytes(range(12))
CANARY = "kanarie-4711"


def sealed_by(key: SecretKey, secret: str = CANARY, channel: str = "mail", name: str = "password") -> str:
    return Keyring([key]).seal(Secret(secret), SecretOwner("channel", channel, channel), name, NONCE)


@pytest.mark.threat(24)
@given(st.text(min_size=1), st.text(min_size=1), st.binary(min_size=12, max_size=12))
def test_sealed_secret_opens_for_its_owner_and_field_and_reveals_nothing(
    secret: str, channel: str, nonce: bytes
) -> None:
    try:
        (secret + channel).encode()
    except UnicodeEncodeError:
        return
    ring = Keyring([NEW])
    sealed = ring.seal(Secret(secret), SecretOwner("channel", channel, channel), "password", nonce)
    assert ring.open(sealed, SecretOwner("channel", channel, channel), "password") == Secret(secret)
    assert len(secret) < 8 or secret not in sealed


@pytest.mark.threat(24)
@pytest.mark.parametrize(
    ("channel", "name"), [("other", "password"), ("mail", "oauth_client_secret"), ("mailp", "assword")]
)
def test_sealed_secret_does_not_open_for_another_owner_or_field(channel: str, name: str) -> None:
    with pytest.raises(SecretUnreadable, match="belongs to another setting"):
        Keyring([NEW]).open(sealed_by(NEW), SecretOwner("channel", channel, channel), name)


@pytest.mark.threat(24)
def test_the_same_secret_is_sealed_differently_each_time() -> None:
    ring = Keyring([NEW])
    assert ring.seal(Secret(CANARY), MAIL, "password", b"a" * 12) != ring.seal(
        Secret(CANARY), MAIL, "password", b"b" * 12
    )


def test_the_first_key_seals_and_all_of_them_open() -> None:
    ring = Keyring([NEW, OLD])
    assert ring.open(sealed_by(OLD), MAIL, "password") == Secret(CANARY)
    assert key_id_of(ring.seal(Secret(CANARY), MAIL, "password", NONCE)) == NEW.key_id
    assert ring.key_ids == (NEW.key_id, OLD.key_id)


def test_change_of_any_bit_of_a_sealed_secret_is_detected() -> None:
    head, _, tail = sealed_by(NEW).rpartition(".")
    raw = base64.urlsafe_b64decode(tail)
    for position in range(len(raw)):
        bent = bytearray(raw)
        bent[position] ^= 1
        with pytest.raises(SecretUnreadable):
            Keyring([NEW]).open(f"{head}.{base64.urlsafe_b64encode(bent).decode()}", MAIL, "password")


@pytest.mark.fault(67)
@pytest.mark.parametrize(
    ("ring", "sealed", "says"),
    [
        (Keyring([NEW]), sealed_by(OLD), f"sealed with the key {OLD.key_id}; this node has {NEW.key_id}"),
        (Keyring(problem="there is no key file k"), sealed_by(OLD), "this node has no keys: there is no key file k"),
        (Keyring([NEW]), CANARY, "not a sealed secret"),
        (Keyring([NEW]), 7, "not a sealed secret"),
        (Keyring([NEW]), sealed_by(NEW)[:-9], "damaged"),
        (Keyring([NEW]), f"1.{NEW.key_id}.====", "not a sealed secret"),
    ],
)
def test_error_of_an_unreadable_secret_names_its_field_and_the_reason(ring: Keyring, sealed: object, says: str) -> None:
    with pytest.raises(SecretUnreadable) as refused:
        ring.open(sealed, MAIL, "password")
    assert "the password of channel 'mail' cannot be read" in refused.value.message
    assert says in refused.value.message
    assert CANARY not in str(refused.value)


def test_a_ring_without_keys_seals_nothing() -> None:
    with pytest.raises(Conflict, match="the file is gone") as refused:
        Keyring(problem="the file is gone").seal(Secret(CANARY), MAIL, "password", NONCE)
    assert refused.value.code == "secret.no_key"


def test_opened_channel_has_its_secrets_and_removes_them_from_texts() -> None:
    ring = Keyring([NEW])
    channel = Channel("mail", "email", {"host": "mx"}, secrets={"password": sealed_by(NEW)})
    opened = ring.open_owner(channel)
    assert opened.settings == {"host": "mx", "password": Secret(CANARY)}
    assert opened.scrub(f"535 {CANARY}") == "535 ***"
    assert ring.problem_of(channel) is None
    assert "cannot be read" in (Keyring([OLD]).problem_of(channel) or "")


@pytest.mark.threat(23)
def test_keyring_removes_every_known_secret_from_a_text() -> None:
    ring = Keyring([NEW])
    assert ring.scrub(CANARY) == CANARY
    ring.open(sealed_by(NEW), MAIL, "password")
    ring.seal(Secret("other-secret"), MAIL, "password", NONCE)
    assert ring.scrub(f"{CANARY} other-secret") == "*** ***"


def test_repr_of_key_and_keyring_hides_the_key() -> None:
    shown = f"{OLD!r} {Keyring([OLD])!r} {vars(Keyring([OLD]))}"
    assert "oooo" not in shown
    assert key_text(b"o" * 32) not in shown


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (key_text(b"o" * 32), 1),
        (base64.b64encode(b"\xff" * 32).decode(), 1),
        (f"# of 2026\n{key_text(b'o' * 32)}  # the newest\n\n{key_text(b'n' * 32)}\r\n", 2),
        (f"{key_text(b'o' * 32)},{key_text(b'n' * 32)}", 2),
    ],
)
def test_keys_are_read_from_lines_or_between_commas(text: str, count: int) -> None:
    assert len(parse_keys(text, "k")) == count


@pytest.mark.fault(67)
@pytest.mark.parametrize("text", ["", "# nothing", "kanarie", key_text(b"o" * 31), key_text(b"o" * 33), "é" * 44])
def test_invalid_key_is_rejected_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_keys(text, "secret.key")
    assert "secret.key" in refused.value.message
    assert len(text) < 8 or text not in str(refused.value)
    assert "kanarie" not in str(refused.value)
