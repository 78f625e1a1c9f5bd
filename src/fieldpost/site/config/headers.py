"""Which headers a call may carry: none that would change where a request ends or to whom it goes."""

import re

from fieldpost.core.errors import InvalidInput

HEADERS_MAX = 50
HEADER_BYTES_MAX = 4096

# What the client writes itself, what frames a request, and the key by which the other side knows a repetition.
_OURS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
     "proxy-authorization", "proxy-connection", "idempotency-key")
)  # fmt: skip
# Who we are is said by the definition, from a secret file; a message in a buffer is no place for it.
_SECRET = frozenset(("authorization", "cookie"))

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\x20-\x7e\t]*")


def check_header(name: object, value: object, field: str, *, is_defined: bool = False) -> None:
    """InvalidInput for a header that may not be sent; `is_defined` says that the site's own file has it."""
    if type(name) is not str or not _NAME.fullmatch(name):
        raise _refused(field, "is no name of a header")
    if name.lower() in _OURS:
        raise _refused(field, "is a header that Fieldpost sets itself")
    if not is_defined and name.lower() in _SECRET:
        raise _refused(field, "is set by the definition alone, as secret_headers in site.toml")
    if type(value) is not str or not _VALUE.fullmatch(value) or value != value.strip():
        raise _refused(field, "must be a text of printable ASCII characters on one line, without spaces around it")
    if len(value) > HEADER_BYTES_MAX:
        raise _refused(field, f"has {len(value)} bytes, at most {HEADER_BYTES_MAX}")


def _refused(field: str, rule: str) -> InvalidInput:
    return InvalidInput("header.invalid", f"{field} {rule}", field=field)
