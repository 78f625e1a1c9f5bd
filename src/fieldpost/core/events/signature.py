"""Signing and verifying webhooks, as the Standard Webhooks specification describes.

A request carries three headers. `webhook-id` is the same at every attempt, so that a receiver can recognise a repeat.
`webhook-timestamp` is the time of the attempt in seconds. `webhook-signature` holds one or more signatures separated by
spaces, each `v1,` and the base64 of HMAC-SHA-256 over `ID.TIMESTAMP.BODY`; after a rotation there are two, one for each
secret. A secret is written as `whsec_` and the base64 of its 24 to 64 bytes.

The body is verified as the bytes that arrived: JSON that was parsed and written again is another text.
"""

import base64
import binascii
import hmac
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
SECRET_PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
KEY_BYTES_DEFAULT = 32
TOLERANCE_S = 300.0
ROTATION_OVERLAP = timedelta(hours=24)
"""For how long after a rotation requests are also signed with the former secret."""
SIGNATURES_MAX = 16
"""Further signatures of a request are not read."""
_VERSION = "v1"
_DIGITS_MAX = 12


class InvalidWebhook(InvalidInput):
    """The request is not an authentic webhook: a header is missing or invalid, it is too old, or not signed with this
    secret. Answer it with 401 and ignore its body."""


@dataclass(frozen=True, slots=True)
class VerifiedWebhook:
    """An authentic webhook."""

    webhook_id: str
    """The same at every attempt: remember it to ignore repeats."""
    sent_at: datetime
    """When this attempt was made."""


def make_signing_secret(entropy: bytes) -> Secret:
    """A new secret from this many random bytes, 24 to 64."""
    return check_signing_secret(SECRET_PREFIX + base64.b64encode(entropy).decode("ascii"))


def check_signing_secret(value: object, field: str = "secret") -> Secret:
    """The secret as given, or InvalidInput; the error never contains the value."""
    if type(value) is not str or _key(value) is None:
        raise InvalidInput(
            "webhook.secret",
            f"{field} must be {SECRET_PREFIX!r} followed by the base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes",
            field=field,
        )
    return Secret(value)


def signed_headers(secrets: Iterable[Secret], webhook_id: str, sent_at: datetime, body: bytes) -> dict[str, str]:
    """The three headers of a request with this body, signed with each of these secrets."""
    seconds = str(math.floor(sent_at.timestamp()))
    signed = _signed(webhook_id, seconds, body)
    signatures = [f"{_VERSION},{base64.b64encode(_sign(_required_key(secret), signed)).decode()}" for secret in secrets]
    return {ID_HEADER: webhook_id, TIMESTAMP_HEADER: seconds, SIGNATURE_HEADER: " ".join(signatures)}


def verify(
    secrets: Sequence[Secret],
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
    tolerance_s: float = TOLERANCE_S,
) -> VerifiedWebhook:
    """The webhook, if one of the secrets signed it at most `tolerance_s` before or after now; else InvalidWebhook.

    Names of headers are compared without regard to case.
    """
    keys = [_required_key(secret) for secret in secrets]
    wanted = (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    given = {name.lower(): value for name, value in headers.items() if name.lower() in wanted}
    for name in wanted:
        if not given.get(name):
            raise InvalidWebhook("webhook.header", f"the header {name} is missing", field=name)
    webhook_id, seconds, signatures = (given[name] for name in wanted)
    sent_at = _check_time(seconds, now, tolerance_s)
    signed = _signed(webhook_id, seconds, body)
    expected = [_sign(key, signed) for key in keys]
    # Every pair is compared, so that the time taken does not show which secret or signature came close.
    matches = [
        hmac.compare_digest(mine, theirs) for theirs in _signatures(signatures) for mine in expected if len(theirs) > 0
    ]
    if not any(matches):
        raise InvalidWebhook(
            "webhook.signature",
            "no signature of the request is by this secret; verify the body as the bytes that arrived",
            field=SIGNATURE_HEADER,
        )
    return VerifiedWebhook(webhook_id, sent_at)


def _check_time(seconds: str, now: datetime, tolerance_s: float) -> datetime:
    if not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= _DIGITS_MAX):
        raise InvalidWebhook(
            "webhook.timestamp", f"{TIMESTAMP_HEADER} must be a whole number of seconds", field=TIMESTAMP_HEADER
        )
    age_s = now.timestamp() - int(seconds)
    if abs(age_s) > tolerance_s:
        direction = "old" if age_s > 0 else "far in the future"
        raise InvalidWebhook(
            "webhook.timestamp",
            f"the request is too {direction}: it is {abs(age_s):.0f} s from the receiver's clock, at most"
            f" {tolerance_s:g} s are allowed",
            field=TIMESTAMP_HEADER,
        )
    return datetime.fromtimestamp(int(seconds), UTC)


def _signatures(text: str) -> list[bytes]:
    """The signatures of our version; other versions and invalid ones are left out."""
    found = []
    for part in text.split(" ", SIGNATURES_MAX)[:SIGNATURES_MAX]:
        version, _, encoded = part.partition(",")
        if version == _VERSION and encoded.isascii():
            try:
                found.append(base64.b64decode(encoded, validate=True))
            except binascii.Error:
                continue
    return found


def _signed(webhook_id: str, seconds: str, body: bytes) -> bytes:
    return f"{webhook_id}.{seconds}.".encode("utf-8", "surrogateescape") + body


def _sign(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")


def _required_key(secret: Secret) -> bytes:
    key = _key(secret.reveal())
    if key is None:
        check_signing_secret(None)
    assert key is not None
    return key


def _key(text: str) -> bytes | None:
    """The bytes of a secret; None if it is not one."""
    encoded = text.removeprefix(SECRET_PREFIX)
    if encoded == text or not encoded.isascii():
        return None
    try:
        key = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return None
    return key if KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX else None
