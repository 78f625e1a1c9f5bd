"""Reading the JSON objects of the ZGW API: every invalid field is named, not only the first one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fieldpost.core.errors import InvalidInput
from fieldpost.core.text import check_text, printable

URL_LENGTH_MAX = 2048
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InvalidParam:
    """One invalid field, as the standard's errors name it."""

    name: str
    code: str
    reason: str


class InvalidParams(InvalidInput):
    """A request with invalid fields."""

    def __init__(self, *params: InvalidParam) -> None:
        first = params[0]
        super().__init__(f"zgw.{first.code}", f"{first.name}: {first.reason}", field=first.name)
        self.params = params


class FieldReader:
    """Reads the fields of one object and collects what is wrong with them; `finish` raises if anything is."""

    def __init__(self, value: object, *, is_partial: bool = False) -> None:
        if not isinstance(value, dict):
            raise InvalidParams(InvalidParam("nonFieldErrors", "invalid", "the body must be a JSON object"))
        self._value: Mapping[str, Any] = value
        self._is_partial = is_partial
        self._found: list[InvalidParam] = []

    def read(self, name: str, check: Callable[[Any, str], T], *, is_required: bool = True) -> T | None:
        """The checked value; None if it is missing where it may be, or invalid."""
        if name not in self._value:
            if is_required and not self._is_partial:
                self.wrong(name, "required", "this field is required")
            return None
        if self._value[name] is None:
            self.wrong(name, "null", "this field must not be null")
            return None
        try:
            return check(self._value[name], name)
        except InvalidParams as error:
            self._found += error.params
        return None

    def wrong(self, name: str, code: str, reason: str) -> None:
        self._found.append(InvalidParam(name, code, reason))

    def finish(self) -> None:
        """Raise InvalidParams if a field is invalid."""
        if self._found:
            raise InvalidParams(*self._found)


def invalid(name: str, code: str, reason: str) -> InvalidParams:
    # Both may contain a key of the request, with any characters.
    return InvalidParams(InvalidParam(printable(name), code, printable(reason)))


def text_of(length_max: int, *, is_blank_allowed: bool = False) -> Callable[[Any, str], str]:
    """A check for texts of at most this many characters that every database stores."""

    def check(value: Any, name: str) -> str:
        if type(value) is not str:
            raise invalid(name, "invalid", "must be a string")
        if not value and not is_blank_allowed:
            raise invalid(name, "blank", "must not be empty")
        if len(value) > length_max:
            raise invalid(name, "max_length", f"must have at most {length_max} characters, got {len(value)}")
        try:
            return check_text(value, name, 4 * length_max)
        except InvalidInput as error:
            raise invalid(name, "invalid", error.message) from None

    return check


def line_of(length_max: int) -> Callable[[Any, str], str]:
    """A check for texts on one line."""
    check_length = text_of(length_max)

    def check(value: Any, name: str) -> str:
        if not check_length(value, name).isprintable():
            raise invalid(name, "invalid", "must not contain control characters or line breaks")
        return str(value)

    return check


def url_of(length_max: int = URL_LENGTH_MAX) -> Callable[[Any, str], str]:
    """A check for absolute URLs of the web."""
    check_line = line_of(length_max)

    def check(value: Any, name: str) -> str:
        try:
            url = urlsplit(check_line(value, name))
            is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        except ValueError:
            is_url = False
        if not is_url or any(character.isspace() for character in value):
            raise invalid(name, "bad-url", "must be a URL that begins with https:// or http://")
        return str(value)

    return check


def optional_url(length_max: int) -> Callable[[Any, str], str]:
    """The same, or an empty text."""
    check_url = url_of(length_max)
    return lambda value, name: "" if value == "" else check_url(value, name)
