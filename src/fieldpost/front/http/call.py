"""One request to central's API: its caller, query and body, and the answer of its handler."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import msgspec
from starlette.requests import Request

from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.cursor import LIMIT_DEFAULT
from fieldpost.central.watch.watch import Watch
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import FilterField
from fieldpost.core.sites.node import SiteNode
from fieldpost.front.auth import Access
from fieldpost.front.backend import Backend
from fieldpost.front.body import check_content_type, read_body
from fieldpost.link.http.body import decode_body
from fieldpost.link.http.endpoint_spec import EndpointSpec, Route
from fieldpost.link.http.view import View

BODY_BYTES_MAX = 1024 * 1024
NO_SPEC = EndpointSpec()

S = TypeVar("S", bound=msgspec.Struct)

ApiRoute = Route[Access]


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file as an answer."""

    content: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Stream:
    """A file that is produced while it is sent, so that it may be larger than memory."""

    pieces: AsyncIterator[bytes]
    media_type: str


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The answer of a handler that needs more than the value itself; without a body an empty 204."""

    body: object = None
    """A file, a struct, or a value that `view` encodes."""
    status: int | None = None
    """The status of the handler's spec unless given."""
    headers: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None
    """The view of the spec unless given."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, after authentication."""

    request: Request
    backend: Backend
    caller: Actor | SiteNode | str | None
    """An actor, a node of a site, an enrolment code, or None, depending on the access rule of the route."""
    spec: EndpointSpec = NO_SPEC

    @property
    def actor(self) -> Actor:
        assert isinstance(self.caller, Actor), "the route is for people and programs"
        return self.caller

    @property
    def role(self) -> Role:
        """The role that decides which fields the caller may see; publishers and subscribers see those of a viewer."""
        role = self.caller.role if isinstance(self.caller, Actor) else Role.VIEWER
        return Role.VIEWER if role in (Role.PUBLISHER, Role.SUBSCRIBER) else role

    @property
    def sender(self) -> SiteNode:
        assert isinstance(self.caller, SiteNode), "the route is for sites"
        return self.caller

    @property
    def site(self) -> str:
        return self.sender.site

    @property
    def code(self) -> str:
        assert isinstance(self.caller, str), "the route is for enrolment codes"
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
        """The query parameters. InvalidInput for those that the spec does not allow."""
        return self.spec.read_query(self.request.query_params.multi_items())

    @overload
    def parameter(self, name: str) -> str | None: ...
    @overload
    def parameter(self, name: str, default: str) -> str: ...
    def parameter(self, name: str, default: str | None = None) -> str | None:
        """A query parameter that is not repeatable."""
        return next(iter(self.query().get(name, ())), default)

    def filters(self, declared: Sequence[FilterField]) -> dict[str, str | list[str]]:
        """The filters that the query gives, as text."""
        query = self.query()
        return {
            field.name: query[field.name] if field.is_repeatable else query[field.name][0]
            for field in declared
            if field.name in query
        }

    def limit(self) -> int:
        """The page size that the query asks for."""
        text = self.parameter("limit", str(LIMIT_DEFAULT))
        if not (text.isascii() and text.isdecimal() and len(text) <= 9):
            raise InvalidInput("limit.range", "limit must be a whole number", field="limit")
        return int(text)

    def paging(self) -> dict[str, Any]:
        """The arguments `limit` and `cursor` of a page."""
        return {"limit": self.limit(), "cursor": self.parameter("cursor")}

    async def read(self, kind: type[S], bytes_max: int = BODY_BYTES_MAX) -> S:
        """The JSON body as this struct, or InvalidInput naming the field."""
        check_content_type(self.request, "application/json")
        return decode_body(await read_body(self.request, bytes_max), kind)


def changes(body: msgspec.Struct, **converted: Any) -> dict[str, Any]:
    """The given fields of a PATCH body without its version, as keyword arguments."""
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not msgspec.UNSET}
    return {name: value for name, value in (given | converted).items() if name != "version"}
