"""Checks of single settings of a webhook: each returns the value to store, or raises InvalidInput naming the field."""

import re
from collections.abc import Mapping
from enum import StrEnum

from fieldpost.core.delivery.quick_tries import BASE_S_MAX, REPEATS_MAX, TryPattern
from fieldpost.core.delivery.rate import parse_rate
from fieldpost.core.errors import InvalidInput, parse_choice
from fieldpost.core.events.body import WebhookFormat
from fieldpost.core.events.signature import check_signing_secret
from fieldpost.core.secret import Secret, check_secret
from fieldpost.core.times import from_text, to_text
from fieldpost.outbound.url import check_url

HEADERS_MAX = 20
HEADER_BYTES_MAX = 4096
CODES_MAX = 50
TEXT_MAX = 512
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]*", re.ASCII)
_RESERVED = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_RESERVED_PREFIXES = ("webhook-", "fieldpost-", "proxy-", "sec-")


class WebhookAuth(StrEnum):
    """How a request authenticates, besides its signature."""

    NONE = "none"
    HEADER = "header"
    """A fixed header."""
    BASIC = "basic"
    OAUTH2 = "oauth2"
    """A bearer token by client credentials."""


def check_auth(value: object, name: str) -> str:
    return parse_choice(WebhookAuth, _text(value, name), "settings.choice", name).value


def check_pattern(value: object, name: str) -> str:
    return parse_choice(TryPattern, _text(value, name), "settings.choice", name).value


def check_format(value: object, name: str) -> str:
    return parse_choice(WebhookFormat, _text(value, name), "settings.choice", name).value


def check_repeats(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= REPEATS_MAX:
        raise _invalid(name, f"must be a whole number from 0 to {REPEATS_MAX}")
    return value


def check_base_s(value: object, name: str) -> float:
    if type(value) not in (int, float) or not 0 < (number := float(str(value))) <= BASE_S_MAX:
        raise _invalid(name, f"must be a number greater than 0 and at most {BASE_S_MAX:g}")
    return number


def check_codes(value: object, name: str) -> str:
    """Codes as a text such as `404 423`, or as a list; stored as text in ascending order."""
    parts = value if isinstance(value, list) else re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else None
    texts = [str(part) for part in parts if part != ""] if parts is not None else None
    if texts is None or len(texts) > CODES_MAX or not all(re.fullmatch(r"[345][0-9]{2}", t, re.ASCII) for t in texts):
        raise _invalid(name, f"must be up to {CODES_MAX} HTTP statuses from 300 to 599, such as 404 423")
    return " ".join(sorted(set(texts)))


def check_moment(value: object, name: str) -> str:
    moment = from_text(value) if isinstance(value, str) else None
    if moment is None:
        raise _invalid(name, "must be an RFC 3339 time")
    return to_text(moment)


def check_header_name(value: object, name: str) -> str:
    text = _text(value, name)
    if not _TOKEN.fullmatch(text):
        raise _invalid(name, "must be the name of an HTTP header")
    # Authorization is allowed here, and only here: the value is stored as a secret.
    if text.lower() != "authorization" and _is_reserved(text):
        raise _invalid(name, f"must not be {text}, which Fieldpost or HTTP itself sets")
    return text


def check_headers(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > HEADERS_MAX:
        raise _invalid(name, f"must be an object with at most {HEADERS_MAX} headers")
    seen: set[str] = set()
    checked: dict[str, str] = {}
    for header, text in value.items():
        where = f"{name}.{str(header)[:64]}"
        if type(header) is not str or not _TOKEN.fullmatch(header):
            raise _invalid(name, f"must contain names of HTTP headers, got {header!r:.64}")
        if _is_reserved(header):
            raise _invalid(where, "is set by Fieldpost or by HTTP itself; use auth for credentials")
        if header.lower() in seen:
            raise _invalid(where, "is given twice")
        if type(text) is not str or len(text) > HEADER_BYTES_MAX or not _VALUE.fullmatch(text) or text != text.strip():
            raise _invalid(where, f"must be up to {HEADER_BYTES_MAX} printable ASCII characters on one line")
        seen.add(header.lower())
        checked[header] = text
    return checked


def check_auth_secret(value: object, name: str) -> Secret:
    secret = value if isinstance(value, Secret) else check_secret(value, name)
    if not _VALUE.fullmatch(secret.reveal()):
        # It is sent in a header. The error must not repeat it.
        raise _invalid(name, "must be printable ASCII characters on one line")
    return secret


def check_signing(value: object, name: str) -> Secret:
    return check_signing_secret(value.reveal() if isinstance(value, Secret) else value, name)


def check_username(value: object, name: str) -> str:
    text = _text(value, name)
    if ":" in text or not _VALUE.fullmatch(text):
        raise _invalid(name, "must be printable ASCII characters without a colon")
    return text


def check_text(value: object, name: str) -> str:
    text = _text(value, name, is_empty_allowed=True)
    if not _VALUE.fullmatch(text):
        raise _invalid(name, "must be printable ASCII characters")
    return text


def check_admin_url(value: object, name: str) -> str:
    return str(check_url(value, "admin", name))


def check_strict_url(value: object, name: str) -> str:
    return str(check_url(value, "strict", name))


def check_rate(value: object, name: str) -> str:
    parse_rate(value, name)
    return str(value)


def codes_of(text: object) -> frozenset[int]:
    return frozenset(map(int, str(text).split()))


def _is_reserved(header: str) -> bool:
    return header.lower() in _RESERVED or header.lower().startswith(_RESERVED_PREFIXES)


def _text(value: object, name: str, *, is_empty_allowed: bool = False) -> str:
    if type(value) is not str or len(value) > TEXT_MAX or (not value and not is_empty_allowed):
        raise _invalid(name, f"must be a string of {0 if is_empty_allowed else 1} to {TEXT_MAX} characters")
    return value


def _invalid(name: str, rule: str) -> InvalidInput:
    return InvalidInput("settings.invalid", f"{name} {rule}", field=name)
