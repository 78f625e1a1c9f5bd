"""The OpenAPI 3.1 document of the local API, generated from its routes."""

import inspect
import re
from typing import Any

import msgspec

import fieldpost
from fieldpost.site.local.handlers import LIMIT_DEFAULT, LIMIT_MAX
from fieldpost.site.local.routes import ROUTES, LocalRoute
from fieldpost.site.local.schemas import LocalProblem

PROBLEMS = {
    "400": "the request is malformed or its body is not valid JSON",
    "401": "the token is missing or wrong (only on the port)",
    "403": "wrong Host, or a request from a web page",
    "404": "not found",
    "409": "the key was used before with different content",
    "413": "the body is too large",
    "415": "the body is not JSON",
    "422": "a value is invalid; `field` names it",
    "502": "the external system refused it for good",
    "503": "temporarily unavailable; try again",
}
ALWAYS = ("400", "401", "403", "422", "503")

_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
QUERY: dict[str, dict[str, Any]] = {
    "after": _WHOLE,
    "before": _WHOLE,
    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    "since": _TIME,
    "until": _TIME,
    "severity": {"enum": ["info", "warning", "error"]},
}


def document() -> dict[str, Any]:
    """The whole document."""
    kinds = [LocalProblem, *(kind for route in ROUTES for kind in (route.takes, route.gives) if kind is not None)]
    unique = list(dict.fromkeys(kinds))
    _, schemas = msgspec.json.schema_components(unique, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fieldpost at a site",
            "version": fieldpost.__version__,
            "description": "The script API for programs in any language on the same machine.",
        },
        "servers": [{"url": "http://127.0.0.1:{port}", "variables": {"port": {"default": "8026"}}}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token in the file local.token. Not needed on the Unix socket.",
                }
            },
        },
    }


def _operation(route: LocalRoute) -> dict[str, Any]:
    text = " ".join((inspect.getdoc(route.handler) or "").split())
    summary, _, _ = text.partition(". ")
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": summary.removesuffix("."),
        "description": text,
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": _content("application/json", route.takes)}
    return operation


def _parameters(route: LocalRoute) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    in_query = [{"name": name, "in": "query", "schema": QUERY.get(name, {"type": "string"})} for name in route.query]
    return in_path + in_query


def _responses(route: LocalRoute) -> dict[str, Any]:
    codes = set(ALWAYS)
    if "{" in route.path:
        codes.add("404")
    if route.takes is not None:
        codes |= {"409", "413", "415"}
    if route.name in ("call", "write"):
        codes.add("502")
    good = {
        "description": inspect.getdoc(route.gives) or "",
        "content": _content("application/json", route.gives),
    }
    problems = {
        code: {"description": PROBLEMS[code], "content": _content("application/problem+json", LocalProblem)}
        for code in sorted(codes)
    }
    return {str(route.status): good, **problems}


def _content(media_type: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
