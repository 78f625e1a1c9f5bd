"""Text rules shared by sites and central, so that central never rejects a text that a site accepted.

Limits are in UTF-8 bytes. A subject becomes a mail header and is therefore one line. SQLite accepts NUL characters but
PostgreSQL does not, and neither accepts lone surrogates: both are rejected on entry.
"""

import re
from functools import lru_cache

from fieldpost.core.errors import InvalidInput

SUBJECT_BYTES_MAX = 998
BODY_BYTES_MAX = 256 * 1024
LIST_NAME_BYTES_MAX = 128
LABEL_BYTES_MAX = 256
ERROR_BYTES_MAX = 2048

_LINE_BREAK = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def check_list_name(value: object) -> str:
    return _check_name(value, "list_name", LIST_NAME_BYTES_MAX)


def check_label(value: object, field: str, bytes_max: int = LABEL_BYTES_MAX) -> str:
    """A short name on one line: an instance, a script, a site, a channel."""
    return _check_name(value, field, bytes_max)


def check_path_name(name: str, field: str) -> str:
    """Check a name that becomes part of a URL path; browsers would resolve . and .. to another page."""
    if name in (".", ".."):
        raise InvalidInput("text.dots", f"{field} must not be . or ..", field=field)
    return name


def is_label(text: str) -> bool:
    """Whether this is a valid name. Check before querying: a database may reject the text itself."""
    try:
        check_label(text, "name")
    except InvalidInput:
        return False
    return True


def check_subject(value: object, field: str = "subject") -> str:
    # Fast path: printable ASCII passes all the rules below.
    if type(value) is str and len(value) <= SUBJECT_BYTES_MAX and value.isascii() and value.isprintable():
        return value
    text = check_text(value, field, SUBJECT_BYTES_MAX)
    if _LINE_BREAK.search(text):
        raise InvalidInput("text.line_break", f"{field} must not contain a line break", field=field)
    return text


def check_body(value: object) -> str:
    if type(value) is str and len(value) <= BODY_BYTES_MAX and value.isascii() and "\x00" not in value:
        return value
    return check_text(value, "body", BODY_BYTES_MAX)


def truncate(text: str, bytes_max: int = ERROR_BYTES_MAX) -> str:
    """Make a text storable: replace NUL and lone surrogates, and cut it to `bytes_max` bytes of UTF-8."""
    encoded = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    return encoded[: bytes_max - 3].decode("utf-8", "ignore") + "…"


def printable_line(text: str, bytes_max: int) -> str:
    """Make foreign text safe to store and show on one line: replace unprintable characters and truncate."""
    return truncate(printable(text), bytes_max)


def printable(text: str) -> str:
    """The text as one line for a terminal: line breaks and control characters become U+FFFD."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _check_name(value: object, field: str, bytes_max: int) -> str:
    # Names repeat, so their checks are cached. Only an exact str may be a cache key: a subclass can equal another str.
    return _check_known(value, field, bytes_max) if type(value) is str else check_text(value, field, bytes_max)


@lru_cache(maxsize=4096)
def _check_known(value: str, field: str, bytes_max: int) -> str:
    text = check_text(value, field, bytes_max)
    if not text.strip():
        raise InvalidInput("text.empty", f"{field} must not be empty", field=field)
    if _CONTROL.search(text):
        raise InvalidInput("text.control", f"{field} must not contain control characters", field=field)
    if text != text.strip():
        raise InvalidInput("text.space", f"{field} must not begin or end with a space", field=field)
    return text


def check_text(value: object, field: str, bytes_max: int) -> str:
    """A text of at most this many bytes that every database stores."""
    # A subclass of str can change its content later, so it is rejected like any other type.
    if type(value) is not str:
        raise InvalidInput("text.type", f"{field} must be a str, not {type(value).__name__}", field=field)
    if "\x00" in value:
        raise InvalidInput("text.nul", f"{field} must not contain a NUL character", field=field)
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput("text.surrogate", f"{field} must not contain a lone surrogate", field=field) from None
    if size > bytes_max:
        raise InvalidInput(
            "text.too_long", f"{field} must be at most {bytes_max} bytes of UTF-8, got {size}", field=field
        )
    return value
