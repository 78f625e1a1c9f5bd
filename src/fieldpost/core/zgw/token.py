"""Tokens of the ZGW APIs: JWTs signed with HS256 by a client's secret, and the expiry of JWTs that receivers gave us.

`parse_token` checks everything about a token but its signature: form, algorithm, claims and times. `is_signed_by` then
compares the signature, in constant time, with that of each valid secret. A refusal is a `Denied` whose code a client
gets; whether the id or the signature was wrong is for the audit log alone.
"""

import base64
import binascii
import hmac
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fieldpost.core.errors import Denied
from fieldpost.core.secret import Secret
from fieldpost.core.text import is_label

TOKEN_BYTES_MAX = 8192
AGE_MAX = timedelta(seconds=3600)
AHEAD_MAX = timedelta(seconds=300)
ALGORITHM = "HS256"
_PART = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClientToken:
    """A token whose claims are in order and whose signature is to be compared."""

    client_id: str
    signed: bytes
    signature: bytes


def parse_token(text: str, now: datetime) -> ClientToken:
    """The token, or Denied with the reason; the signature is not checked yet."""
    parts = text.split(".")
    if len(text) > TOKEN_BYTES_MAX or len(parts) != 3:
        raise refuse("jwt-decode-error", "the token must be a JWT of at most 8 KiB")
    header, claims, signature = _decoded_json(parts[0]), _decoded_json(parts[1]), _decoded(parts[2])
    if header is None or claims is None or signature is None:
        raise refuse("jwt-decode-error", "the token is not a JWT: three parts in base64url, the first two JSON objects")
    if header.get("alg") != ALGORITHM or "crit" in header:
        raise refuse("jwt-algorithm", f"the token must be signed with {ALGORITHM}")
    client_id = claims.get("client_id")
    if type(client_id) is not str or not is_label(client_id):
        raise refuse("missing-client-identifier", "the token must have the claim client_id")
    _check_times(claims, now)
    return ClientToken(client_id, text.rpartition(".")[0].encode("ascii"), signature)


def is_signed_by(token: ClientToken, secrets: Iterable[Secret]) -> bool:
    """Whether one of the secrets signed the token. Every secret is compared, so that the time reveals nothing."""
    found = False
    for secret in secrets:
        found |= hmac.compare_digest(sign(token.signed, secret), token.signature)
    return found


def sign(signed: bytes, secret: Secret) -> bytes:
    return hmac.digest(secret.reveal().encode(), signed, "sha256")


def refuse(code: str, message: str) -> Denied:
    """The error for a request that its token does not allow."""
    return Denied(f"zgw.{code}", message)


def jwt_expiry(auth: str) -> datetime | None:
    """When the JWT in this Authorization header expires; None if it is not a JWT, or has no such time."""
    parts = auth.rpartition(" ")[2].split(".")
    claims = _decoded_json(parts[1]) if len(parts) == 3 and _decoded_json(parts[0]) is not None else None
    expiry = None if claims is None else _seconds(claims.get("exp"))
    # Outside these years the number is a mistake, not a time.
    return datetime.fromtimestamp(expiry, UTC) if expiry is not None and 0 < expiry < 253_370_764_800 else None


def _check_times(claims: dict[str, Any], now: datetime) -> None:
    issued = claims.get("iat")
    # A whole number of modest size: a float here is a mistake of the client, and 1e300 no time at all.
    if type(issued) is not int or abs(issued) > 10**12:
        raise refuse("jwt-missing-iat", "the token must have the claim iat, in whole seconds")
    age = now.timestamp() - issued
    if age > AGE_MAX.total_seconds():
        raise refuse("jwt-expired", f"the token was issued more than {AGE_MAX.total_seconds():.0f} s ago")
    if -age > AHEAD_MAX.total_seconds():
        raise refuse("jwt-not-yet-valid", f"the token was issued more than {AHEAD_MAX.total_seconds():.0f} s ahead")
    if "exp" in claims:
        expiry = _seconds(claims["exp"])
        if expiry is None:
            raise refuse("jwt-expired", "the claim exp of the token must be a number of seconds")
        if expiry <= now.timestamp():
            raise refuse("jwt-expired", "the token has expired")


def _seconds(value: object) -> float | None:
    if type(value) is int and abs(value) < 10**15:
        return float(value)
    return value if type(value) is float and math.isfinite(value) else None


def _decoded_json(part: str) -> dict[str, Any] | None:
    try:
        value = json.loads(_decoded(part) or b"")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _decoded(part: str) -> bytes | None:
    if not _PART.fullmatch(part):
        return None
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        return None
