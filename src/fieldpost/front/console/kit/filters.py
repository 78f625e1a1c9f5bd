"""Filters in the URL of a page.

An invalid field gets an error next to its input, which keeps the typed text. The page then shows no results, because
results without that filter would mislead, but links to itself with the valid fields only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import FilterField, FilterKind
from fieldpost.core.times import from_text, to_text
from fieldpost.front.console.kit.request import SubmittedForm, field_errors
from fieldpost.front.console.kit.times import moment_in, zone_of

TIMES = ("from", "to")

F = TypeVar("F")
QueryFields = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class FilterQuery(Generic[F]):
    """The filter of a URL, parsed field by field."""

    wanted: F
    """The filter made of the valid fields."""
    read: dict[str, str | list[str]]
    """The valid fields."""
    given: dict[str, str]
    """The submitted texts, for the form; times are in `zone`."""
    zone: str
    errors: dict[str, str]
    declared: Sequence[FilterField] = ()

    @property
    def is_readable(self) -> bool:
        return not self.errors

    @property
    def flags(self) -> list[FilterField]:
        return [field for field in self.declared if field.kind is FilterKind.FLAG]

    def field(self, name: str) -> FilterField | None:
        return next((field for field in self.declared if field.name == name), None)

    def fields_without(self, names: Sequence[str]) -> list[FilterField]:
        """The declared fields that have their own inputs, without these."""
        return [field for field in self.declared if field.name not in names and field.kind is not FilterKind.FLAG]

    def has_any(self, fields: Sequence[FilterField]) -> bool:
        """Whether one of these fields, or the time range, is set or wrong."""
        names = {"last", "zone", *(field.name for field in fields)}
        return not names.isdisjoint(self.read.keys() | self.errors.keys())

    def moment(self, name: str) -> datetime | None:
        """The given time, if it is valid."""
        text = self.read.get(name)
        return from_text(text) if name in self.given and isinstance(text, str) else None

    @property
    def form(self) -> SubmittedForm:
        """The filter form as submitted."""
        return SubmittedForm(self.given, self.errors, 422 if self.errors else 200)


def read_filter(
    query: QueryParams,
    declared: Sequence[FilterField],
    parse: Callable[[QueryFields], F],
    *,
    defaults: Mapping[str, str] | None = None,
) -> FilterQuery[F]:
    """Parse the declared fields; values of a repeatable field may also be separated by commas.

    Empty fields are ignored. `defaults` apply to missing fields.
    """
    names = [field.name for field in declared]
    given = {name: query[name].strip() for name in names if query.get(name, "").strip()}
    errors: dict[str, str] = {}
    zone = query.get("zone", "").strip()
    try:
        zone_of(zone)
    except InvalidInput as error:
        errors |= field_errors(error)
        zone = ""
    read: dict[str, str | list[str]] = {**(defaults or {}), **given}
    if errors:
        # Without a valid zone the times are meaningless.
        read = {name: value for name, value in read.items() if name not in TIMES}
    for name in (field.name for field in declared if field.is_repeatable):
        values = [value.strip() for text in query.getlist(name) for value in text.split(",") if value.strip()]
        if values:
            read[name] = values
            given[name] = ",".join(values)
    for name in TIMES:
        if name in given and name in read:
            try:
                read[name] = to_text(moment_in(given[name], zone, name))
            except InvalidInput as error:
                errors |= field_errors(error)
                del read[name]
    while True:
        try:
            return FilterQuery(parse(read), read, given, zone, errors, declared)
        except InvalidInput as error:
            if error.field not in read:
                raise
            errors |= field_errors(error)
            del read[error.field]


def address(path: str, fields: QueryFields, **more: str | None) -> str:
    """The URL of a page with these fields."""
    query = urlencode({**fields, **{name: value for name, value in more.items() if value}}, doseq=True)
    return f"{path}?{query}" if query else path


def typed(moment: datetime) -> str:
    """A time as a URL parameter: in seconds, UTC."""
    return to_text(moment)[:19] + "Z"
