"""Webhook signatures, against the reference verifier library and against forged requests."""

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from fieldpost import InvalidWebhook, verify_webhook
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.signature import check_signing_secret, make_signing_secret, signed_headers, verify
from fieldpost.core.secret import Secret

NOW = datetime(2026, 11, 16, 12, 0, 0, 250_000, tzinfo=UTC)
OLD = make_signing_secret(bytes(range(32)))
NEW = make_signing_secret(bytes(range(32, 64)))
BODY = '{"type":"orders.created","data":{"city":"Zürich"}}'.encode()


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200), st.uuids())
@pytest.mark.req("WHK-02")
@pytest.mark.dec("DEC-49")
def test_reference_library_accepts_what_we_sign(entropy: bytes, text: str, webhook_id: object) -> None:
    secret, body = make_signing_secret(entropy), text.encode("utf-8", "replace")
    headers = signed_headers([secret], str(webhook_id), datetime.now(UTC), body)
    standardwebhooks.Webhook(secret.reveal()).verify(body, headers, json_parse=False)


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200).map(str.encode), st.uuids())
def test_verify_webhook_accepts_what_the_reference_library_signs(entropy: bytes, body: bytes, webhook_id: str) -> None:
    secret = make_signing_secret(entropy).reveal()
    signature = standardwebhooks.Webhook(secret).sign(str(webhook_id), NOW.replace(microsecond=0), body.decode())
    headers = {
        "Webhook-Id": str(webhook_id),
        "Webhook-Timestamp": str(int(NOW.timestamp())),
        "Webhook-Signature": signature,
    }
    verified = verify_webhook(secret, headers, body, now=NOW)
    assert verified.webhook_id == str(webhook_id)
    assert verified.sent_at == NOW.replace(microsecond=0)


@pytest.mark.dec("DEC-49")
@pytest.mark.parametrize("known", [OLD, NEW], ids=["former", "new"])
def test_a_request_with_two_signatures_is_valid_for_either_secret(known: Secret) -> None:
    headers = signed_headers([NEW, OLD], "id-1", datetime.now(UTC), BODY)
    assert len(headers["webhook-signature"].split(" ")) == 2
    standardwebhooks.Webhook(known.reveal()).verify(BODY, headers)
    assert verify_webhook(known.reveal(), headers, BODY).webhook_id == "id-1"


def test_a_receiver_may_verify_with_both_secrets_during_a_rotation() -> None:
    headers = signed_headers([OLD], "id-1", NOW, BODY)
    assert verify_webhook([NEW.reveal(), OLD.reveal()], headers, BODY, now=NOW).webhook_id == "id-1"


GOOD = signed_headers([OLD], "id-1", NOW, BODY)


@pytest.mark.bad_input(60)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"webhook-id": None}, "webhook.header"),
        ({"webhook-timestamp": None}, "webhook.header"),
        ({"webhook-signature": ""}, "webhook.header"),
        ({"webhook-id": "id-2"}, "webhook.signature"),
        ({"webhook-timestamp": str(int(NOW.timestamp()) + 1)}, "webhook.signature"),
        ({"webhook-timestamp": "-1"}, "webhook.timestamp"),
        ({"webhook-timestamp": "1e9"}, "webhook.timestamp"),
        ({"webhook-timestamp": "٣"}, "webhook.timestamp"),
        ({"webhook-timestamp": "9" * 400}, "webhook.timestamp"),
        ({"webhook-timestamp": "nan"}, "webhook.timestamp"),
        ({"webhook-signature": "v1"}, "webhook.signature"),
        ({"webhook-signature": "v1,x,y"}, "webhook.signature"),
        ({"webhook-signature": "v1,"}, "webhook.signature"),
        ({"webhook-signature": "v1,%%%"}, "webhook.signature"),
        ({"webhook-signature": "v1,ü"}, "webhook.signature"),
        ({"webhook-signature": GOOD["webhook-signature"].replace("v1,", "v2,")}, "webhook.signature"),
        ({"webhook-signature": GOOD["webhook-signature"].replace("v1,", "")}, "webhook.signature"),
        ({"webhook-signature": signed_headers([NEW], "id-1", NOW, BODY)["webhook-signature"]}, "webhook.signature"),
    ],
)
def test_forged_request_raises_the_typed_error(changes: Mapping[str, str | None], code: str) -> None:
    headers = {name: value for name, value in (GOOD | dict(changes)).items() if value is not None}
    with pytest.raises(InvalidWebhook) as raised:
        verify_webhook(OLD.reveal(), headers, BODY, now=NOW)
    assert raised.value.code == code


@pytest.mark.threat(19)
@pytest.mark.parametrize("body", [BODY + b" ", b"", b"\xff\xfe"])
def test_changed_body_is_rejected(body: bytes) -> None:
    with pytest.raises(InvalidWebhook):
        verify_webhook(OLD.reveal(), GOOD, body, now=NOW)


@pytest.mark.threat(19)
@pytest.mark.parametrize(("age_s", "is_valid"), [(299, True), (-299, True), (302, False), (-302, False)])
def test_replayed_request_is_rejected_after_the_tolerance(age_s: int, is_valid: bool) -> None:
    now = NOW + timedelta(seconds=age_s)
    if is_valid:
        verify([OLD], GOOD, BODY, now)
    else:
        with pytest.raises(InvalidWebhook, match=r"too (old|far in the future)"):
            verify([OLD], GOOD, BODY, now)


def test_bodies_that_are_not_text_are_signed_and_verified() -> None:
    body = os.urandom(64)
    assert verify([OLD], signed_headers([OLD], "id-1", NOW, body), body, NOW).webhook_id == "id-1"


@pytest.mark.threat(19)
@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "whsec_",
        "whsec_abc",
        "whsec_" + "A" * 31,
        "whsec_" + "A" * 88,
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "ü",
    ],
)
def test_invalid_secret_is_rejected_without_being_repeated(value: object) -> None:
    with pytest.raises(
        InvalidInput, match="secret must be 'whsec_' followed by the base64 of 24 to 64 bytes"
    ) as raised:
        check_signing_secret(value)
    assert not value or str(value) == "whsec_" or str(value) not in str(raised.value)


def test_verifying_loads_no_http_or_site_library() -> None:
    program = (
        "import sys; from fieldpost import verify_webhook;"
        "print([n for n in ('aiohttp', 'apsw', 'msgspec', 'structlog', 'sqlalchemy', 'typer') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_importing_site_does_not_load_the_signatures() -> None:
    program = (
        "import sys; from fieldpost import Site;"
        "print([n for n in sys.modules if n in ('fieldpost.outbox.receiver', 'fieldpost.core.events.signature')])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
