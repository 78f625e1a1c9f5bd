"""A secret as a value: it can be handed on, compared and revealed, and it never shows itself.

Whoever prints, logs or formats a `Secret` gets three stars. Only `reveal()` gives the text, right where it is sent. For
what comes back from outside (a server may repeat what it was told, an exception may quote it) there is `Scrubber`,
which takes known secrets out of any text.
"""

import base64
import json
import re
from collections.abc import Iterable
from typing import NoReturn
from urllib.parse import quote, quote_plus

from fieldpost.core.errors import InvalidInput

HIDDEN = "***"
SECRET_BYTES_MAX = 4096
_ENCODED_MIN = 4  # of fewer bytes so little is left in an encoded text that anything would match


class Secret:
    """A password, a client's secret, a token. Equal to another of the same text; copied as itself; never pickled."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for whoever has to send it."""
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
        raise TypeError("a secret is not written anywhere, hence not pickled")


def check_secret(value: object, field: str) -> Secret:
    """What was given as a secret, or InvalidInput; the error never repeats it."""
    if type(value) is not str:
        raise InvalidInput("secret.type", f"{field} must be a text", field=field)
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
    """Takes secrets out of texts: as they are, quoted, percent-encoded, and in base64 wherever in it they stand."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret.reveal())}
        # The longest first, so that a secret that holds another is taken out whole.
        self._found = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return self._found is not None

    def __call__(self, text: str) -> str:
        return self._found.sub(HIDDEN, text) if self._found is not None else text


def _forms(text: str) -> Iterable[str]:
    if not text:
        return
    # An exception quotes what it tells, and a log line quotes the exception.
    quoted = {text, *_quoted(text)}
    yield from quoted.union(*map(_quoted, quoted))
    yield quote(text, safe="")
    yield quote_plus(text)
    raw = text.encode("utf-8", "replace")
    if len(raw) < _ENCODED_MIN:
        return
    # In base64 three bytes make four characters, so a text looks different at each of three offsets; the characters
    # that it shares with its neighbours are left out.
    for before in range(3):
        first = (before * 4 + 2) // 3
        last = (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + raw).decode("ascii")[first:last]


def _quoted(text: str) -> set[str]:
    """As Python and JSON write it within quotes; which ones Python takes depends on the text around it."""
    beside_double = repr('"' + text)[2:-1]
    return {repr(text)[1:-1], beside_double, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
