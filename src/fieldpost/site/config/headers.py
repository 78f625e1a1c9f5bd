"""The headers that a call may have: none that changes the framing or the destination of a request."""

import re

from fieldpost.core.errors import InvalidInput

HEADERS_MAX = 50
HEADER_BYTES_MAX = 4096

# Set by the client, part of the framing, or the key by which the receiver recognizes a repetition.
_OURS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
     "proxy-authorization", "proxy-connection", "idempotency-key")
)  # fmt: skip
# Credentials come from a secret file of the definition and must not be in a buffered message.
_SECRET = frozenset(("authorization", "cookie"))

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")


def check_header(name: object, value: object, field: str, *, is_defined: bool = False) -> None:
    """Raise InvalidInput for a header that may not be sent. `is_defined`: it comes from `site.toml`."""
    if type(name) is not str or not _NAME.fullmatch(name):
        raise refused_header(field, "is not a valid header name")
    if name.lower() in _OURS:
        raise refused_header(field, "is set by Fieldpost")
    if not is_defined and name.lower() in _SECRET:
        raise refused_header(field, "can only be set in site.toml, as one of secret_headers")
    if type(value) is not str or not _VALUE.fullmatch(value) or value != value.strip():
        raise refused_header(field, "must be one line of printable ASCII characters without surrounding spaces")
    if len(value) > HEADER_BYTES_MAX:
        raise refused_header(field, f"must be at most {HEADER_BYTES_MAX} bytes, got {len(value)}")


def refused_header(field: str, rule: str) -> InvalidInput:
    """The error for a header that violates this rule."""
    return InvalidInput("header.invalid", f"{field} {rule}", field=field)
