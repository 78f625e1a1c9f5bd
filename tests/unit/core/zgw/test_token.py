"""Tokens of ZGW clients, and the expiry of JWTs that receivers gave us."""

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fieldpost.core.errors import Denied
from fieldpost.core.secret import Secret
from fieldpost.core.zgw.token import is_signed_by, jwt_expiry, parse_token, sign

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
IAT = int(NOW.timestamp())
SECRET = Secret("s" * 32)


def part(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def token(claims: object = None, header: object = None, secret: Secret = SECRET) -> str:
    given = {"client_id": "open-zaak", "iat": IAT} if claims is None else claims
    signed = f"{part({'typ': 'JWT', 'alg': 'HS256'} if header is None else header)}.{part(given)}"
    return f"{signed}.{part(sign(signed.encode(), secret))}"


def claims(**more: Any) -> dict[str, Any]:
    return {"client_id": "open-zaak", "iat": IAT, **more}


@pytest.mark.req("ZGW-10")
@pytest.mark.parametrize(
    "given",
    [
        claims(),
        claims(iss="open-zaak", user_id="u", user_representation="U", exp=IAT + 1),
        claims(exp=IAT + 0.5),
        claims(iat=IAT - 3600),
        claims(iat=IAT + 300),
    ],
)
def test_valid_token_names_its_client(given: dict[str, Any]) -> None:
    parsed = parse_token(token(given), NOW)

    assert parsed.client_id == "open-zaak"
    assert is_signed_by(parsed, [SECRET])
    assert is_signed_by(parsed, [Secret("former"), SECRET])
    assert not is_signed_by(parsed, [Secret("another")])
    assert not is_signed_by(parsed, [])


@pytest.mark.req("ZGW-10")
@pytest.mark.bad_input(53)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "jwt-decode-error"),
        ("a.b", "jwt-decode-error"),
        ("a.b.c.d", "jwt-decode-error"),
        ("é.é.é", "jwt-decode-error"),
        (token([1]), "jwt-decode-error"),
        (token("text"), "jwt-decode-error"),
        (token(b"not JSON"), "jwt-decode-error"),
        (token(b"\xff\xfe"), "jwt-decode-error"),
        (token(b"[" * 5000), "jwt-decode-error"),
        (token(header=[1]), "jwt-decode-error"),
        (token().replace(".", ".!", 1), "jwt-decode-error"),
        (token().rpartition(".")[0] + ".", "jwt-decode-error"),
        (token().rpartition(".")[0] + ".a", "jwt-decode-error"),
        (token(claims(pad="x" * 100_000)), "jwt-decode-error"),
        (token(header={"alg": "none"}), "jwt-algorithm"),
        (token(header={"alg": "HS512"}), "jwt-algorithm"),
        (token(header={"alg": "RS256"}), "jwt-algorithm"),
        (token(header={"alg": "hs256"}), "jwt-algorithm"),
        (token(header={"alg": ["HS256"]}), "jwt-algorithm"),
        (token(header={}), "jwt-algorithm"),
        (token(header={"alg": "HS256", "crit": ["x"]}), "jwt-algorithm"),
        (token({"iat": IAT}), "missing-client-identifier"),
        (token(claims(client_id=1)), "missing-client-identifier"),
        (token(claims(client_id="")), "missing-client-identifier"),
        (token(claims(client_id="a\nb")), "missing-client-identifier"),
        (token(claims(client_id="\ud800")), "missing-client-identifier"),
        (token({"client_id": "open-zaak"}), "jwt-missing-iat"),
        (token(claims(iat=str(IAT))), "jwt-missing-iat"),
        (token(claims(iat=float(IAT))), "jwt-missing-iat"),
        (token(claims(iat=True)), "jwt-missing-iat"),
        (token(claims(iat=None)), "jwt-missing-iat"),
        (token(claims(iat=10**400)), "jwt-missing-iat"),
        (token(claims(iat=0)), "jwt-expired"),
        (token(claims(iat=IAT - 3601)), "jwt-expired"),
        (token(claims(iat=IAT + 301)), "jwt-not-yet-valid"),
        (token(claims(iat=IAT + 86400)), "jwt-not-yet-valid"),
        (token(claims(exp=IAT)), "jwt-expired"),
        (token(claims(exp=IAT - 1)), "jwt-expired"),
        (token(claims(exp="soon")), "jwt-expired"),
        (token(claims(exp=None)), "jwt-expired"),
        (token(claims(exp=float("inf"))), "jwt-expired"),
    ],
)
def test_invalid_token_is_refused_with_a_code(text: str, code: str) -> None:
    with pytest.raises(Denied) as error:
        parse_token(text, NOW)
    assert error.value.code == f"zgw.{code}"


@pytest.mark.threat(14)
def test_every_part_of_a_token_is_signed() -> None:
    head, body, signature = token().split(".")
    for changed in (
        f"{part({'alg': 'HS256'})}.{body}.{signature}",
        f"{head}.{part(claims(client_id='another'))}.{signature}",
        f"{head}.{body}.{part(bytes(32))}",
    ):
        assert not is_signed_by(parse_token(changed, NOW), [SECRET])


def test_verifying_a_token_takes_less_than_a_twentieth_of_a_millisecond() -> None:
    text = token(claims(iss="open-zaak", user_id="u" * 20, user_representation="U" * 20))
    best = 1.0
    for _ in range(5):
        began = time.process_time()
        for _ in range(200):
            assert is_signed_by(parse_token(text, NOW), [SECRET])
        best = min(best, (time.process_time() - began) / 200)
    assert best < 0.000_05


@pytest.mark.req("ZGW-12")
@pytest.mark.parametrize(
    ("auth", "expiry"),
    [
        (f"Bearer {token(claims(exp=IAT + 43200))}", NOW + timedelta(hours=12)),
        (token(claims(exp=IAT)), NOW),
        (f"Bearer {token()}", None),
        (f"Bearer {token(claims(exp='x'))}", None),
        (f"Bearer {token(claims(exp=10**300))}", None),
        (f"Bearer {token(claims(exp=1e300))}", None),
        (f"Bearer {token(claims(exp=-1))}", None),
        ("Bearer opaque", None),
        ("Token a.b.c", None),
        ("", None),
    ],
)
def test_expiry_of_a_jwt_is_read_without_its_secret(auth: str, expiry: datetime | None) -> None:
    assert jwt_expiry(auth) == expiry
