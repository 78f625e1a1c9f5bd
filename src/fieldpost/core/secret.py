"""Secret values that never print themselves.

Printing, logging or formatting a `Secret` gives three asterisks; only `reveal()` returns the text, right where it is
sent. `Scrubber` removes known secrets from texts of external origin: a server may repeat a secret, an exception may
quote it.
"""

import base64
import html
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote, quote_plus

from fieldpost.core.errors import InvalidInput

HIDDEN = "***"
SECRET_BYTES_MAX = 4096
_MEMO_SIZE = 4096
_CREDENTIALS = re.compile(r"[A-Za-z0-9-]+ +(\S{8,})")
"""The value of an Authorization header: a scheme, and credentials that are long enough not to be an ordinary word."""
_ENCODED_MIN = 4  # fewer bytes leave so few encoded characters that unrelated text would match


class Secret:
    """A password, client secret or token. Compared by text, never copied, never pickled."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The plain text."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


def check_secret(value: object, field: str) -> Secret:
    """Return the secret, or raise InvalidInput; the error never contains the value."""
    if type(value) is not str:
        raise InvalidInput("secret.type", f"{field} must be a string", field=field)
    if "\x00" in value:
        raise InvalidInput("secret.invalid", f"{field} must not contain a NUL character", field=field)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput("secret.invalid", f"{field} must not contain a lone surrogate", field=field) from None
    if not 0 < size <= SECRET_BYTES_MAX:
        raise InvalidInput("secret.invalid", f"{field} must have 1 to {SECRET_BYTES_MAX} bytes", field=field)
    return Secret(value)


class Scrubber:
    """Removes secrets from texts: plain, quoted, percent-encoded, in XML, and in base64 at any offset."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        forms = {form for secret in secrets for form in secret_forms(secret)}
        # Longest first, so that a secret that contains another is removed completely.
        self._found = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None

    def __bool__(self) -> bool:
        """Whether there are secrets to remove."""
        return self._found is not None

    def __call__(self, text: str) -> str:
        return self._found.sub(HIDDEN, text) if self._found is not None else text


@lru_cache(maxsize=_MEMO_SIZE)
def scrubber_of(*secrets: Secret | None) -> Scrubber:
    """A cached scrubber: compiling one takes longer than sending, and attempts use the same few secrets."""
    return Scrubber(secret for secret in secrets if secret is not None)


def secret_forms(secret: Secret) -> Iterable[str]:
    """The spellings under which a secret may appear in a text: plain, quoted, percent-encoded, in XML, base64.

    A secret like `Bearer TOKEN` may also appear as the token alone.
    """
    if not (text := secret.reveal()):
        return
    yield from _forms(text)
    if found := _CREDENTIALS.fullmatch(text):
        yield from _forms(found[1])


def _forms(text: str) -> Iterable[str]:
    # An exception quotes the text, and a log line quotes the exception.
    quoted = {text, *_quoted(text)}
    yield from quoted.union(*map(_quoted, quoted))
    yield quote(text, safe="")
    yield quote_plus(text)
    yield html.escape(text)
    raw = text.encode("utf-8", "replace")
    if len(raw) < _ENCODED_MIN:
        return
    # Base64 encodes three bytes as four characters, so a text has three encodings, by its offset. Characters that mix
    # in neighbouring bytes are left out.
    for before in range(3):
        first = (before * 4 + 2) // 3
        last = (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + raw).decode("ascii")[first:last]


def _quoted(text: str) -> set[str]:
    """The text as escaped by Python and JSON; Python's quote character depends on the text around it."""
    beside_double = repr('"' + text)[2:-1]
    return {repr(text)[1:-1], beside_double, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
