"""Endpoints as data: the route, and the query, body and answer of its handler.

`@spec` above a handler declares its parameters and answers. Requests are read by the same declaration, and the OpenAPI
document is made from it, so that code and description cannot differ.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import FilterField, FilterKind
from fieldpost.link.http.view import JsonSchema

A = TypeVar("A")
H = TypeVar("H", bound=Callable[..., Awaitable[object]])

JSON = "application/json"

TEXT: JsonSchema = {"type": "string"}
NAME: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 256}
WORDS: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 998}
LIMIT: JsonSchema = {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
MOMENT: JsonSchema = {"type": "string", "format": "date-time", "examples": ["2026-11-15T08:00:00Z"]}
ID: JsonSchema = {"type": "string", "format": "uuid"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header."""

    name: str
    schema: JsonSchema
    description: str
    is_repeatable: bool = False
    is_required: bool = False


LIMITED = Parameter("limit", LIMIT, "Page size")
PAGED = (LIMITED, Parameter("cursor", TEXT, "Continue here: the `next_cursor` of the previous page"))


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """The request that a handler takes and the answers it gives."""

    answer: object = None
    """A View, a struct, a tuple of them, a media type for text, or a mapping of media types; None for no content."""
    status: int = 200
    body: object = None
    """The struct of the JSON body, or a mapping of media types to structs."""
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    other_answers: Mapping[int, object] | None = None
    """Further successful or expected answers, by status."""
    problems: tuple[int, ...] = ()
    """Problem statuses beyond those that follow from the route."""

    def read_query(self, given: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
        """The parameters by name. InvalidInput for an unknown, repeated or missing one."""
        known = {parameter.name: parameter for parameter in self.query}
        values: dict[str, list[str]] = {}
        for name, value in given:
            if name not in known:
                raise InvalidInput("query.unknown", f"unknown query parameter {name[:64]!r}", field=name[:64])
            if name in values and not known[name].is_repeatable:
                raise InvalidInput("query.twice", f"{name} is given twice", field=name)
            values.setdefault(name, []).append(value)
        for name, parameter in known.items():
            if parameter.is_required and name not in values:
                raise InvalidInput("query.missing", f"{name} is required", field=name)
        return values


@dataclass(frozen=True)
class Route(Generic[A]):
    """One row of an API's route table."""

    method: str
    path: str
    handler: Callable[..., Awaitable[object]]
    access: A
    """Who may call it."""

    @property
    def spec(self) -> EndpointSpec | None:
        return spec_of(self.handler)


_specs: dict[object, EndpointSpec] = {}


def spec(answer: object = None, status: int | None = None, **more: Any) -> Callable[[H], H]:
    """Decorate a handler with its EndpointSpec; without an answer the status is 204."""
    made = EndpointSpec(answer, status or (204 if answer is None else 200), **more)

    def keep(handler: H) -> H:
        _specs[handler] = made
        return handler

    return keep


def spec_of(handler: object) -> EndpointSpec | None:
    return _specs.get(handler)


def one_of(choices: Iterable[str]) -> JsonSchema:
    return {"type": "string", "enum": [str(choice) for choice in choices]}


def filter_parameters(declared: Sequence[FilterField]) -> tuple[Parameter, ...]:
    """The query parameters of these filters."""
    return tuple(
        Parameter(field.name, _filter_schema(field), field.help, is_repeatable=field.is_repeatable)
        for field in declared
    )


def _filter_schema(field: FilterField) -> JsonSchema:
    match field.kind:
        case FilterKind.TEXT:
            return {**NAME, "maxLength": field.bytes_max}
        case FilterKind.CHOICE:
            return one_of(field.choices)
        case FilterKind.TIME:
            return MOMENT
        case FilterKind.FLAG:
            return one_of(("true", "false"))
        case FilterKind.WORDS:
            return WORDS
        case FilterKind.ID:
            return ID
        case FilterKind.ERROR_GROUP:
            return {"type": "string", "pattern": "^[0-9a-f]{12}$"}
