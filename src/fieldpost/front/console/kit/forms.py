"""Forms: what a browser sends, and the proof that it was sent from a page of ours.

Each form carries a token made from the visitor's cookie, which another site cannot read (a synchronizer token without a
table). It looks different in every answer, so that the length of a compressed page tells nothing of it. Beside it
stands what the browser itself says of where the request comes from.
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
    """The token that forms on a page carry, for the visitor whose cookie this is: a mask of chance, and what is behind
    it."""
    mask = secrets.token_bytes(_TOKEN_BYTES)
    return (mask + _masked(_token(secret), mask)).hex()


def is_form_token(given: str, secret: str) -> bool:
    """Whether this is a token that the visitor with this cookie got from us."""
    try:
        shown = bytes.fromhex(given)
    except ValueError:
        return False
    mask, masked = shown[:_TOKEN_BYTES], shown[_TOKEN_BYTES:]
    return len(masked) == _TOKEN_BYTES and hmac.compare_digest(_masked(masked, mask), _token(secret))


def new_secret() -> str:
    """The cookie of a visitor who has no session yet."""
    return secrets.token_urlsafe(32)


async def read_form(request: Request, secret: str | None, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
    """The form's fields, of one that was given more than once the last; Denied as `read_fields` is."""
    return {name: values[-1] for name, values in (await read_fields(request, secret, bytes_max)).items()}


async def read_fields(request: Request, secret: str | None, bytes_max: int = FORM_BYTES_MAX) -> dict[str, list[str]]:
    """The form's fields, each with all its values; Denied unless it was sent from a page that this visitor got from
    us."""
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
    """Denied when the browser says that another site sent this; browsers too old to say so are judged by the token."""
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
    """The version of what was seen, which a form that changes it carries; InvalidInput if it names none."""
    text = form.get("version", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidInput("form.version", "version must be a whole number", field="version")
    return int(text)


def local_path(text: str | None) -> str:
    """A path on this server to go on to; whatever else it may be becomes the first page."""
    is_local = text is not None and text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_local and text is not None and len(text) < 2000 else "/"
