"""Forms and their CSRF protection.

Each form carries a token derived from the session cookie, which other origins cannot read: a synchronizer token without
a table. The token is masked with fresh random bytes in every response, so that the length of a compressed page leaks
nothing about it (BREACH). In addition, the Sec-Fetch-Site and Origin headers must name this server.
"""

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from fieldpost.core.errors import Denied, InvalidInput
from fieldpost.front.body import check_content_type, read_body

FORM_BYTES_MAX = 16 * 1024
FIELDS_MAX = 300
TOKEN_FIELD = "csrf"
_TOKEN_BYTES = 16


def form_token(secret: str) -> str:
    """A fresh CSRF token for this cookie: a random mask followed by the masked token."""
    mask = secrets.token_bytes(_TOKEN_BYTES)
    return (mask + _masked(_token(secret), mask)).hex()


def is_form_token(given: str, secret: str) -> bool:
    """Whether the CSRF token was made for this cookie."""
    try:
        shown = bytes.fromhex(given)
    except ValueError:
        return False
    mask, masked = shown[:_TOKEN_BYTES], shown[_TOKEN_BYTES:]
    return len(masked) == _TOKEN_BYTES and hmac.compare_digest(_masked(masked, mask), _token(secret))


def new_secret() -> str:
    """A cookie value for a browser without a session."""
    return secrets.token_urlsafe(32)


async def read_form(request: Request, secret: str | None, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
    """The fields of the form, the last value of each; Denied like `read_fields`."""
    return {name: values[-1] for name, values in (await read_fields(request, secret, bytes_max)).items()}


async def read_fields(request: Request, secret: str | None, bytes_max: int = FORM_BYTES_MAX) -> dict[str, list[str]]:
    """All values of each field of the form; Denied unless it was submitted from a page of the same session."""
    check_origin(request)
    check_content_type(request, "application/x-www-form-urlencoded")
    data = await read_body(request, bytes_max)
    try:
        pairs = parse_qsl(data.decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidInput("http.form", "the form is not valid URL-encoded UTF-8") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    given = fields.pop(TOKEN_FIELD, [""])[-1]
    if secret is None or not is_form_token(given, secret):
        raise foreign()
    return fields


def _token(secret: str) -> bytes:
    return hmac.digest(secret.encode(), b"fieldpost form", sha256)[:_TOKEN_BYTES]


def _masked(text: bytes, mask: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(text, mask, strict=True))


def check_origin(request: Request) -> None:
    """Denied if the browser reports another origin. Old browsers send no such header; the token protects them."""
    where = request.headers.get("sec-fetch-site")
    if where is not None:
        if where not in ("same-origin", "none"):
            raise foreign()
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise foreign()


def foreign() -> Denied:
    return Denied(
        "form.foreign",
        "the form was not submitted from a page of your session; nothing was changed",
        hint="reload the page and try again",
    )


def version_of(form: Mapping[str, str]) -> int:
    """The version of the object that the user saw; InvalidInput if the form has no valid one."""
    text = form.get("version", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidInput("form.version", "version must be a whole number", field="version")
    return int(text)


def local_path(text: str | None) -> str:
    """The text if it is a path on this server, otherwise the path of the start page."""
    is_local = text is not None and text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_local and text is not None and len(text) < 2000 else "/"
