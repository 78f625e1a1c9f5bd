"""`/api/v1/openapi.json`: the API described by OpenAPI 3.1, made of the table of routes and the handlers' promises.

The statuses of problems follow from what a route takes: whoever must show a token may be told 401, whoever sends a body
415, and so on. A test reads the description and tries everything in it.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, get_args

import msgspec

import fieldpost
from fieldpost.front.auth import Access
from fieldpost.front.http.call import ApiAnswer, ApiRoute, Call, FileAnswer
from fieldpost.front.http.endpoint_spec import ID, JSON, NAME, Parameter, Promise, promise_of, spec
from fieldpost.front.http.problems import Problem

PATH = "/api/v1/openapi.json"
PROBLEM = "application/problem+json"
REFERENCE = "#/components/schemas/{name}"
SUMMARY_LENGTH_MAX = 120

DESCRIPTION = """\
Machines at sites notify people over links that fail. A program shows an API token in the header `Authorization: Bearer
TOKEN`; `x-role` of an operation names the least role that is served. A field or a query parameter that nobody knows is
refused by its name. Every answer that is not a success is problem+json with a stable `code`.

Pages are read by keyset: `next_cursor` of one is the `cursor` of the next, and what arrives meanwhile moves nothing.
What is changed names the `version` that was seen; another one is answered by 409. A body has at most 1 MiB, a file of
lists 8 MiB, a batch of notifications 500 items and 4 MiB, a page 200 rows."""

PATHS = {"name": NAME, "key": NAME, "token_id": NAME, "session_id": NAME}
"""What path parameters look like; all others are ids."""


@spec({JSON: None})
async def show(_call: Call) -> ApiAnswer:
    """This description of the API, by OpenAPI 3.1."""
    from fieldpost.front.api.routes import ROUTES

    return ApiAnswer(FileAnswer(_text(ROUTES), JSON))


def document(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """The description of these routes; those without a promise, which are the link's, are left out."""
    promised = [(route, promise) for route in routes if (promise := promise_of(route.handler)) is not None]
    schemas = _Schemas(promise for _, promise in promised)
    paths: dict[str, dict[str, Any]] = {}
    for route, promise in promised:
        paths.setdefault(plain(route.path), {})[route.method.lower()] = _operation(route, promise, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fieldpost",
            "version": fieldpost.__version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "An API token."}},
        },
    }


def plain(path: str) -> str:
    """A path as people write it; that a name may hold slashes is the router's affair."""
    return path.replace(":path}", "}")


@lru_cache(maxsize=1)
def _text(routes: tuple[ApiRoute, ...]) -> str:
    return msgspec.json.encode(document(routes)).decode()


class _Schemas:
    """The schemas of all structs that are promised, each once, and the references to them."""

    def __init__(self, promised: Iterable[Promise]) -> None:
        types: list[object] = [Problem]
        for promise in promised:
            for given in (promise.answer, promise.body, *(promise.may or {}).values()):
                types += [one for one in _types(given) if one not in types]
        found, components = msgspec.json.schema_components(types, schema_hook=_anything, ref_template=REFERENCE)
        self._of = {id(type_): schema for type_, schema in zip(types, found, strict=True)}
        self.components = dict(sorted(components.items()))

    def content(self, given: object) -> dict[str, Any]:
        """What a body or an answer may be, by its media type."""
        match given:
            case str():
                return {given: {"schema": {"type": "string"}}}
            case Mapping():
                return {kind: {"schema": self._media(kind, one)} for kind, one in given.items()}
            case _:
                return {JSON: {"schema": self._schema(given)}}

    def _media(self, kind: str, given: object) -> dict[str, Any]:
        if given is not None:
            return self._schema(given)
        return {"type": "object"} if kind == JSON else {"type": "string"}

    def _schema(self, given: object) -> dict[str, Any]:
        several = get_args(given)
        if several:
            return {"anyOf": [self._of[id(one)] for one in several]}
        return self._of[id(given)]


def _anything(kind: type) -> dict[str, Any]:
    """What a channel's settings may be is its adapter's affair."""
    if kind is object:
        return {"description": "any value"}
    raise NotImplementedError(kind)


def _types(given: object) -> list[object]:
    match given:
        case None | str():
            return []
        case Mapping():
            return [one for one in given.values() if one is not None]
        case _:
            return list(get_args(given)) or [given]


def _operation(route: ApiRoute, promise: Promise, schemas: _Schemas) -> dict[str, Any]:
    said = " ".join((inspect.getdoc(route.handler) or "").split())
    described: dict[str, Any] = {
        "operationId": operation_id(route),
        "tags": [_tag(route)],
        "summary": said.partition(". ")[0].rstrip(".")[:SUMMARY_LENGTH_MAX],
        "description": said,
        "x-role": route.access.value,
        "security": [] if route.access is Access.ANYONE else [{"token": []}],
        "responses": _responses(route, promise, schemas),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": PATHS.get(name, ID)} for name in _names(route)
    ]
    parameters += [_parameter(one, "query") for one in promise.query]
    parameters += [_parameter(one, "header") for one in promise.headers]
    if parameters:
        described["parameters"] = parameters
    if promise.body is not None:
        described["requestBody"] = {"required": True, "content": schemas.content(promise.body)}
    return described


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema = {"type": "array", "items": parameter.schema} if parameter.is_many else parameter.schema
    described: dict[str, Any] = {"name": parameter.name, "in": place, "description": parameter.says, "schema": schema}
    if parameter.is_required:
        described["required"] = True
    if parameter.is_many:
        described |= {"style": "form", "explode": True}
    return described


def _responses(route: ApiRoute, promise: Promise, schemas: _Schemas) -> dict[str, Any]:
    done: dict[str, Any] = {"description": HTTPStatus(promise.status).phrase}
    if promise.answer is not None:
        done["content"] = schemas.content(promise.answer)
    if promise.status == HTTPStatus.ACCEPTED:
        done["headers"] = {"Location": {"schema": {"type": "string"}, "required": True}}
    responses = {promise.status: done}
    for status, answer in (promise.may or {}).items():
        responses[status] = {"description": HTTPStatus(status).phrase, "content": schemas.content(answer)}
    for status in _problems(route, promise):
        responses.setdefault(status, _problem(status))
    return {str(status): responses[status] for status in sorted(responses)}


def _problems(route: ApiRoute, promise: Promise) -> set[int]:
    found = {400, 422, 500, 503, *promise.problems}
    if route.access is not Access.ANYONE:
        found.add(401)
    if route.access in (Access.OPERATOR, Access.ADMIN):
        found.add(403)
    if _names(route):
        found.add(404)
    if promise.body is not None:
        found |= {408, 413, 415}
    return found


def _problem(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {PROBLEM: {"schema": {"$ref": REFERENCE.format(name=Problem.__name__)}}},
    }
    told = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}.get(status)
    if told is not None:
        described["headers"] = {told: {"schema": {"type": "string"}, "required": True}}
    return described


def _names(route: ApiRoute) -> list[str]:
    return re.findall(r"\{(\w+)", route.path)


def operation_id(route: ApiRoute) -> str:
    """The noun and the verb, as the modules and functions are called."""
    handler = route.handler
    return f"{handler.__module__.rpartition('.')[2]}_{handler.__name__.rstrip('_')}"


def _tag(route: ApiRoute) -> str:
    parts = route.path.removeprefix("/api/v1").split("/")
    return parts[1] if route.path.startswith("/api/") else "probes"
