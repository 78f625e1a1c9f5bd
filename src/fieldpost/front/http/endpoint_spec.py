"""What a handler promises: the query and body it takes, and what it answers. The API's description is made of it.

The promise stands above the handler. What is read of a request is read by it too (`Call.query`), so that a parameter
cannot be taken and not be described, nor the other way round.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fieldpost.core.search.filters import FilterField, FilterKind

if TYPE_CHECKING:
    from fieldpost.front.http.call import ApiAnswer, Call

JSON = "application/json"

JsonSchema = Mapping[str, Any]
"""Of JSON Schema, as OpenAPI 3.1 has it."""

TEXT: JsonSchema = {"type": "string"}
NAME: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 256}
WORDS: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 998}
LIMIT: JsonSchema = {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
MOMENT: JsonSchema = {"type": "string", "format": "date-time", "examples": ["2026-11-15T08:00:00Z"]}
ID: JsonSchema = {"type": "string", "format": "uuid"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query, or a header."""

    name: str
    schema: JsonSchema
    says: str
    is_many: bool = False
    """May stand there more than once."""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    answer: object = None
    """The struct that is answered, or a union of several; None for an empty answer, a media type for a text."""
    status: int = 200
    body: object = None
    """The struct that the JSON body must be, or several by their media types; None where none is read."""
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    may: Mapping[int, object] | None = None
    """Other answers that are no problems, by their status."""
    problems: tuple[int, ...] = ()
    """Statuses of problems besides those that follow from what is taken."""


LIMITED = Parameter("limit", LIMIT, "how many a page may hold")
PAGED = (LIMITED, Parameter("cursor", TEXT, "where to go on: the `next_cursor` of the page before"))

NOTHING = Promise()

_promises: dict[object, Promise] = {}


def spec(answer: object = None, status: int | None = None, **more: Any) -> Callable[["SpecHandler"], "SpecHandler"]:
    """Above a handler: what it takes and answers."""
    promise = Promise(answer, status or (204 if answer is None else 200), **more)

    def keep(handler: "SpecHandler") -> "SpecHandler":
        _promises[handler] = promise
        return handler

    return keep


def promise_of(handler: object) -> Promise | None:
    return _promises.get(handler)


def filter_parameters(declared: Iterable[FilterField]) -> tuple[Parameter, ...]:
    """The query parameters of these filters."""
    return tuple(
        Parameter(field.name, _filter_schema(field), field.help, is_many=field.is_repeatable) for field in declared
    )


def _filter_schema(field: FilterField) -> JsonSchema:
    match field.kind:
        case FilterKind.TEXT:
            return NAME
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


def one_of(words: Iterable[str]) -> JsonSchema:
    return {"type": "string", "enum": [str(word) for word in words]}


SpecHandler = Callable[["Call"], Awaitable["ApiAnswer"]]
