"""The OpenAPI 3.1 document of an API, made from its route table and the specs of the handlers.

The statuses of problems follow from the route: a route that needs a token can answer 401, one with a body 415, and so
on. Tests read the document and try everything in it.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

import fieldpost
from fieldpost.link.http import problem
from fieldpost.link.http.endpoint_spec import JSON, TEXT, EndpointSpec, Parameter, Route
from fieldpost.link.http.problem import Problem
from fieldpost.link.http.view import REFERENCE, JsonSchema, View

SUMMARY_LENGTH_MAX = 120
_PROBLEM_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiInfo:
    """The parts of a document that do not follow from the routes."""

    title: str
    description: str
    token: str
    """Describes the bearer token."""
    servers: Sequence[Mapping[str, object]] = ({"url": "/"},)
    path_schemas: Mapping[str, JsonSchema] = field(default_factory=dict)
    """The schemas of path parameters; text unless given."""
    operation: Callable[[Route[Any]], dict[str, Any]]
    """The members of an operation that are particular to the API: operationId, security, tags."""
    problems: Callable[[Route[Any]], Iterable[int]]
    """The problem statuses that follow from the access rules of a route."""


def document(routes: Iterable[Route[Any]], info: ApiInfo) -> dict[str, Any]:
    """The document of these routes; routes without a spec are left out."""
    described = [(route, spec) for route in routes if (spec := route.spec) is not None]
    schemas = _Schemas(spec for _, spec in described)
    paths: dict[str, dict[str, Any]] = {}
    for route, spec in described:
        paths.setdefault(plain_path(route.path), {})[route.method.lower()] = _operation(route, spec, schemas, info)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": info.title,
            "version": fieldpost.__version__,
            "description": info.description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": list(info.servers),
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": info.token}},
        },
    }


def plain_path(path: str) -> str:
    """A path without the router's converters."""
    return path.replace(":path}", "}")


class _Schemas:
    """The component schemas of all views and structs, and references to them."""

    def __init__(self, specs: Iterable[EndpointSpec]) -> None:
        given = [one for spec in specs for one in (spec.answer, spec.body, *(spec.other_answers or {}).values())]
        types = [Problem, *(one for types in map(_types, given) for one in types)]
        structs = [one for one in dict.fromkeys(types) if not isinstance(one, View)]
        schemas, components = msgspec.json.schema_components(structs, schema_hook=_any_value, ref_template=REFERENCE)
        self._references = dict(zip(structs, schemas, strict=True))
        views = {one.name: one.schema() for view in types if isinstance(view, View) for one in view.nested()}
        self.components = dict(sorted((components | views).items()))

    def content(self, given: object) -> dict[str, Any]:
        """The content of a body or an answer, by media type."""
        match given:
            case str():
                return {given: {"schema": TEXT}}
            case Mapping():
                return {kind: {"schema": self._media(kind, one)} for kind, one in given.items()}
            case tuple():
                return {JSON: {"schema": {"anyOf": [self._reference(one) for one in given]}}}
            case _:
                return {JSON: {"schema": self._reference(given)}}

    def _media(self, kind: str, given: object) -> JsonSchema:
        if given is not None:
            return self._reference(given)
        return {"type": "object"} if kind == JSON else TEXT

    def _reference(self, given: object) -> JsonSchema:
        return given.reference if isinstance(given, View) else self._references[given]


def _any_value(kind: type) -> dict[str, Any]:
    if kind is object:
        return {"description": "any value"}
    raise NotImplementedError(kind)


def _types(given: object) -> list[Any]:
    match given:
        case None | str():
            return []
        case Mapping():
            return [one for one in given.values() if one is not None]
        case tuple():
            return list(given)
        case _:
            return [given]


def _operation(route: Route[Any], spec: EndpointSpec, schemas: _Schemas, info: ApiInfo) -> dict[str, Any]:
    text = " ".join((inspect.getdoc(route.handler) or "").split())
    operation: dict[str, Any] = {
        **info.operation(route),
        "summary": text.partition(". ")[0].rstrip(".")[:SUMMARY_LENGTH_MAX],
        "description": text,
        "responses": _responses(route, spec, schemas, info),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": info.path_schemas.get(name, TEXT)}
        for name in _path_parameters(route)
    ]
    parameters += [_parameter(one, "query") for one in spec.query]
    parameters += [_parameter(one, "header") for one in spec.headers]
    if parameters:
        operation["parameters"] = parameters
    if spec.body is not None:
        operation["requestBody"] = {"required": True, "content": schemas.content(spec.body)}
    return operation


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema = {"type": "array", "items": parameter.schema} if parameter.is_repeatable else parameter.schema
    described: dict[str, Any] = {"name": parameter.name, "in": place, "schema": schema}
    described["description"] = parameter.description
    if parameter.is_required:
        described["required"] = True
    if parameter.is_repeatable:
        described |= {"style": "form", "explode": True}
    return described


def _responses(route: Route[Any], spec: EndpointSpec, schemas: _Schemas, info: ApiInfo) -> dict[str, Any]:
    success: dict[str, Any] = {"description": HTTPStatus(spec.status).phrase}
    if spec.answer is not None:
        success["content"] = schemas.content(spec.answer)
    if spec.status == HTTPStatus.ACCEPTED:
        success["headers"] = {"Location": {"schema": TEXT, "required": True}}
    responses = {spec.status: success}
    for status, answer in (spec.other_answers or {}).items():
        responses[status] = {"description": HTTPStatus(status).phrase, "content": schemas.content(answer)}
    statuses = {400, 422, 500, 503, *spec.problems, *info.problems(route)}
    if _path_parameters(route):
        statuses.add(404)
    if spec.body is not None:
        statuses |= {408, 413, 415}
    for status in statuses:
        responses.setdefault(status, _problem(status))
    return {str(status): responses[status] for status in sorted(responses)}


def _problem(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {problem.MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(name=Problem.__name__)}}},
    }
    if (header := _PROBLEM_HEADERS.get(status)) is not None:
        described["headers"] = {header: {"schema": TEXT, "required": True}}
    return described


def _path_parameters(route: Route[Any]) -> list[str]:
    return re.findall(r"\{(\w+)", route.path)
