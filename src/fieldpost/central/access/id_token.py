"""ID tokens of an identity provider: signed JSON (RFC 7519), accepted after all checks that OpenID Connect requires.

The signature schemes RS256 and ES256 are supported, which every provider offers. A token with another scheme, `none`
above all, is rejected, and a key is only used for its own scheme. Times are compared with a tolerance for clock skew.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

LIFE_MAX = timedelta(days=1)
"""An ID token is used at once; one that never expires is a mistake of the provider."""
SKEW = timedelta(seconds=120)
TOKEN_CHARACTERS_MAX = 64 * 1024
RSA_BITS_MIN = 2048
_CURVE_BYTES = 32

Claims = Mapping[str, object]
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class BadToken(Exception):
    """The token is not valid; the text gives the reason and quotes nothing of the token."""


class UnknownKey(BadToken):
    """The token names an unknown key; the provider may have published a new one."""


def read_keys(document: object) -> dict[str, PublicKey]:
    """The provider's signing keys by id (RFC 7517), without keys of unsupported types."""
    found = {}
    keys = document.get("keys") if isinstance(document, dict) else None
    for one in keys if isinstance(keys, list) else []:
        if isinstance(one, dict) and one.get("use", "sig") == "sig":
            key_id = one.get("kid", "")
            try:
                key = _key(one)
            except (ValueError, TypeError, KeyError):
                continue
            if isinstance(key_id, str) and key is not None:
                found[key_id] = key
    return found


def verify(
    token: str, keys: Mapping[str, PublicKey], *, issuer: str, client_id: str, nonce: str, now: datetime
) -> Claims:
    """The claims, if this provider issued the token for us, for this login, and recently. Raises BadToken."""
    claims = _signed(token, keys)
    if claims.get("iss") != issuer:
        raise BadToken("the token is from another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences or (len(audiences) > 1 and claims.get("azp") != client_id):
        raise BadToken("the token is for another client")
    if claims.get("nonce") != nonce:
        raise BadToken("the token belongs to another login")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise BadToken("the token names no subject")
    expires, issued = _seconds(claims, "exp"), _seconds(claims, "iat")
    at, skew = now.timestamp(), SKEW.total_seconds()
    if expires <= at - skew:
        raise BadToken("the token has expired")
    if not expires <= at + LIFE_MAX.total_seconds():
        raise BadToken(f"the token is valid for more than {LIFE_MAX.days} day")
    if issued > at + skew:
        raise BadToken("the token is from the future; one of the two clocks is wrong")
    return claims


def values_of(claims: Claims, path: str) -> frozenset[str]:
    """The texts of a claim, one or a list; dots in the path separate levels (`realm_access.roles`)."""
    found: object = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    many: Iterable[object] = found if isinstance(found, list) else [found]
    return frozenset(one for one in many if isinstance(one, str))


def _signed(token: str, keys: Mapping[str, PublicKey]) -> Claims:
    if len(token) > TOKEN_CHARACTERS_MAX or token.count(".") != 2 or not token.isascii():
        raise BadToken("it is not a signed token")
    head, body, signature = token.split(".")
    header = _object(head)
    key_id = header.get("kid", "")
    key = keys.get(key_id) if isinstance(key_id, str) else None
    if key is None and "kid" not in header and len(keys) == 1:
        key = next(iter(keys.values()))
    if key is None:
        raise UnknownKey("the token is signed with a key that the provider does not publish")
    scheme = "RS256" if isinstance(key, rsa.RSAPublicKey) else "ES256"
    if header.get("alg") != scheme or "crit" in header:
        raise BadToken(f"the token is not signed with {scheme}")
    try:
        _check(key, _bytes(signature), f"{head}.{body}".encode("ascii"))
    except InvalidSignature:
        raise BadToken("the signature of the token is wrong") from None
    return _object(body)


def _check(key: PublicKey, signature: bytes, data: bytes) -> None:
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, data, padding.PKCS1v15(), SHA256())
        return
    if len(signature) != 2 * _CURVE_BYTES:
        raise InvalidSignature
    r, s = (int.from_bytes(signature[at : at + _CURVE_BYTES]) for at in (0, _CURVE_BYTES))
    key.verify(encode_dss_signature(r, s), data, ec.ECDSA(SHA256()))


def _key(one: Mapping[str, object]) -> PublicKey | None:
    match one.get("kty"):
        case "RSA":
            numbers = rsa.RSAPublicNumbers(_number(one["e"]), _number(one["n"]))
            key = numbers.public_key()
            return key if key.key_size >= RSA_BITS_MIN else None
        case "EC" if one.get("crv") == "P-256":
            return ec.EllipticCurvePublicNumbers(_number(one["x"]), _number(one["y"]), ec.SECP256R1()).public_key()
        case _:
            return None


def _number(text: object) -> int:
    return int.from_bytes(_bytes(str(text)))


def _object(text: str) -> Claims:
    try:
        found = json.loads(_bytes(text))
    except (ValueError, RecursionError):
        raise BadToken("it is not a signed token") from None
    if not isinstance(found, dict):
        raise BadToken("it is not a signed token")
    return found


def _bytes(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise BadToken("it is not a signed token") from None


def _seconds(claims: Claims, name: str) -> float:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadToken(f"the token has no {name}")
    return float(value)
