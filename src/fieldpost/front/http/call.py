"""One call of the API: who calls, what he sends, and how a handler answers."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from starlette.requests import Request

from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.notifications import LIMIT_DEFAULT
from fieldpost.central.watch.watch import Watch
from fieldpost.core.actor import Actor
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import FilterField
from fieldpost.front.auth import Access
from fieldpost.front.backend import Backend
from fieldpost.front.body import check_content_type, read_body
from fieldpost.front.http.endpoint_spec import NOTHING, Promise
from fieldpost.link.codec import check_json

BODY_BYTES_MAX = 1024 * 1024

S = TypeVar("S", bound=msgspec.Struct)


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all bodies have in common: a field that nobody knows is refused by its name."""


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file as an answer."""

    content: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Stream:
    """A file that is made while it is sent, so that it may be larger than memory."""

    pieces: AsyncIterator[bytes]
    media_type: str


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What a handler gives back; without a body it is an empty 204."""

    body: msgspec.Struct | FileAnswer | Stream | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    request: Request
    backend: Backend
    caller: Actor | str | None
    """An actor, a site's name, the code that was shown, or nobody, as the route's access has it."""
    promise: Promise = NOTHING
    """What the handler takes and answers."""

    @property
    def actor(self) -> Actor:
        assert isinstance(self.caller, Actor), "the route serves people and programs"
        return self.caller

    @property
    def site(self) -> str:
        assert isinstance(self.caller, str), "the route serves sites"
        return self.caller

    @property
    def code(self) -> str:
        assert isinstance(self.caller, str), "the route serves who shows a code"
        return self.caller

    @property
    def operate(self) -> Operate:
        return self.backend.operate

    @property
    def watch(self) -> Watch:
        return self.backend.watch

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self) -> dict[str, list[str]]:
        """The query's parameters; one that was not promised, or stands twice without leave, is refused."""
        known = {parameter.name: parameter for parameter in self.promise.query}
        given: dict[str, list[str]] = {}
        for name, value in self.request.query_params.multi_items():
            if name not in known:
                raise InvalidInput("query.unknown", f"there is no parameter {name[:64]!r} here", field=name[:64])
            if name in given and not known[name].is_many:
                raise InvalidInput("query.twice", f"{name} stands there twice", field=name)
            given.setdefault(name, []).append(value)
        return given

    def filters(self, declared: Sequence[FilterField]) -> dict[str, str | list[str]]:
        """The filters that the query gives, as text."""
        query = self.query()
        return {
            field.name: query[field.name] if field.is_repeatable else query[field.name][0]
            for field in declared
            if field.name in query
        }

    def limit(self, query: Mapping[str, list[str]]) -> int:
        """How many a page may hold, as the query has it."""
        text = query["limit"][0] if "limit" in query else str(LIMIT_DEFAULT)
        if not (text.isascii() and text.isdecimal() and len(text) <= 9):
            raise InvalidInput("limit.range", "limit must be a whole number", field="limit")
        return int(text)

    async def read(self, kind: type[S], bytes_max: int = BODY_BYTES_MAX) -> S:
        """The JSON body as this struct, or InvalidInput naming the field."""
        check_content_type(self.request, "application/json")
        data = await read_body(self.request, bytes_max)
        check_json(data)
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise InvalidInput("body.invalid", f"the body does not fit: {error}", field=_field_of(str(error))) from None


ApiHandler = Callable[[Call], Awaitable[ApiAnswer]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One row of the API's table."""

    method: str
    path: str
    handler: ApiHandler
    access: Access


def _field_of(error: str) -> str | None:
    """The field that msgspec names in its text."""
    at = re.search(r"at `\$\.?([^`]*)`", error)
    named = re.search(r"field `([^`]*)`", error)
    parts = [found[1] for found in (at, named) if found and found[1]]
    return ".".join(parts)[:128] or None
