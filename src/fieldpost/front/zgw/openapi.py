"""The OpenAPI document of the ZGW API: the standard's paths, schemas and operation ids.

It is version 3.0, because `zds_client` rejects 3.1. Callers read it without a token: clients of this field load it
before they make one. The YAML document is the same JSON, which every YAML parser reads.
"""

import json
from functools import cache
from typing import Any

from starlette.responses import Response

from fieldpost.core.events.filter import ENTRIES_MAX
from fieldpost.core.zgw.abonnement import AUTH_LENGTH_MAX, CALLBACK_LENGTH_MAX, LINK_LENGTH_MAX
from fieldpost.core.zgw.client import ZgwScope
from fieldpost.core.zgw.fields import URL_LENGTH_MAX
from fieldpost.core.zgw.notification import KANAAL_LENGTH_MAX, KENMERKEN_MAX, NAME_LENGTH_MAX, VALUE_LENGTH_MAX
from fieldpost.front.zgw.call import BASE, ZgwCall
from fieldpost.front.zgw.faults import API_VERSION

Schema = dict[str, Any]

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$"
_URL_PATTERN = r"^https?://[A-Za-z0-9]"
_PROBLEMS = (400, 403, 404, 405, 408, 409, 413, 415, 429, 431, 503)
_SUMMARIES = {
    "kanaal_list": "List all kanalen",
    "kanaal_create": "Create a kanaal",
    "kanaal_read": "Show a kanaal",
    "kanaal_update": "Change a kanaal; its name is fixed",
    "kanaal_partial_update": "Change parts of a kanaal; its name is fixed",
    "abonnement_list": "List the client's abonnementen",
    "abonnement_create": "Create an abonnement; the callback gets a test notification first",
    "abonnement_read": "Show an abonnement",
    "abonnement_update": "Change an abonnement; the callback gets a test notification first",
    "abonnement_partial_update": "Change parts of an abonnement; the callback gets a test notification first",
    "abonnement_delete": "Delete an abonnement",
    "notificaties_create": "Publish a notification",
}


async def show_yaml(call: ZgwCall) -> Response:
    return Response(_encoded(call.url()), media_type="application/yaml")


async def show_json(call: ZgwCall) -> Response:
    return Response(_encoded(call.url()), media_type="application/json")


@cache
def _encoded(url: str) -> bytes:
    return json.dumps(document(url), indent=1).encode()


def document(url: str = BASE) -> dict[str, Any]:
    """The document for the API at this URL."""
    from fieldpost.front.zgw.routes import ROUTES  # the table contains the routes of this module

    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        if route.operation_id:
            shown = _operation(route.operation_id, route.status, route.access, route.query)
            paths.setdefault(route.path.removeprefix(BASE), {})[route.method.lower()] = shown
    for path, operations in paths.items():
        if "{uuid}" in path:
            schema = {"type": "string", "format": "uuid"}
            operations["parameters"] = [{"name": "uuid", "in": "path", "required": True, "schema": schema}]
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Notificaties API",
            "version": API_VERSION,
            "description": "Notificaties API voor Zaakgericht Werken, served by Fieldpost.",
        },
        "servers": [{"url": url}],
        "security": [{"JWT-Claims": []}],
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"JWT-Claims": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "responses": {"fault": _answer("An error", {"$ref": "#/components/schemas/Fout"}, is_fault=True)},
        },
    }


def _operation(operation_id: str, status: int, scopes: tuple[ZgwScope, ...], query: tuple[str, ...]) -> dict[str, Any]:
    noun, _, verb = operation_id.partition("_")
    name = {"kanaal": "Kanaal", "abonnement": "Abonnement", "notificaties": "Notificatie"}[noun]
    schema: Schema = {"$ref": f"#/components/schemas/{name}"}
    if verb == "list":
        schema = {"type": "array", "items": schema}
    operation: dict[str, Any] = {
        "operationId": operation_id,
        "summary": _SUMMARIES[operation_id],
        "description": f"Scopes: {' or '.join(scope.full_name for scope in scopes)}",
        "tags": [noun],
        "responses": {str(status): _answer("OK", None if status == 204 else schema)}
        | {str(problem): {"$ref": "#/components/responses/fault"} for problem in _PROBLEMS},
    }
    if status == 201 and noun != "notificaties":
        location = {"schema": {"type": "string", "format": "uri"}, "description": "URL of the new object"}
        operation["responses"]["201"]["headers"]["Location"] = location
    if query:
        parameter = {"type": "string"}
        operation["parameters"] = [
            {"name": one, "in": "query", "required": False, "schema": parameter} for one in query
        ]
    if verb in ("create", "update", "partial_update"):
        sent = f"Patched{name}" if verb == "partial_update" else name
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{sent}"}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _answer(description: str, schema: Schema | None, *, is_fault: bool = False) -> dict[str, Any]:
    version = {"API-version": {"schema": {"type": "string"}, "description": "Version of the API"}}
    answer: dict[str, Any] = {"description": description, "headers": version}
    if schema is not None:
        answer["content"] = {"application/problem+json" if is_fault else "application/json": {"schema": schema}}
    return answer


def _text(length_max: int, length_min: int = 1, **more: Any) -> Schema:
    return {"type": "string", "minLength": length_min, "maxLength": length_max, **more}


def _object(properties: Schema, *required: str) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


_OWN_URL: Schema = {"type": "string", "format": "uri", "readOnly": True}
_URL: Schema = _text(URL_LENGTH_MAX, format="uri", pattern=_URL_PATTERN)
_KANAAL: Schema = {
    "url": _OWN_URL,
    "naam": _text(KANAAL_LENGTH_MAX, pattern=_NAME),
    "documentatieLink": _text(LINK_LENGTH_MAX, 0, pattern=rf"^$|{_URL_PATTERN}"),
    "filters": {"type": "array", "maxItems": 100, "items": _text(NAME_LENGTH_MAX, pattern=_NAME)},
}
_ABONNEMENT: Schema = {
    "url": _OWN_URL,
    "callbackUrl": _text(CALLBACK_LENGTH_MAX, format="uri", pattern=_URL_PATTERN),
    "auth": _text(AUTH_LENGTH_MAX, pattern="^[ -~]+$", writeOnly=True),
    "kanalen": {
        "type": "array",
        "minItems": 1,
        "maxItems": ENTRIES_MAX,
        "items": {"$ref": "#/components/schemas/AbonnementKanaal"},
    },
}
_NOTIFICATIE: Schema = {
    "kanaal": _text(KANAAL_LENGTH_MAX),
    "hoofdObject": _URL,
    "resource": _text(NAME_LENGTH_MAX),
    "resourceUrl": _URL,
    "actie": _text(NAME_LENGTH_MAX),
    "aanmaakdatum": {"type": "string", "format": "date-time"},
    "kenmerken": {
        "type": "object",
        "maxProperties": KENMERKEN_MAX,
        "additionalProperties": {
            "anyOf": [_text(VALUE_LENGTH_MAX, 0), {"type": "number"}, {"type": "boolean"}],
        },
    },
    "source": _text(NAME_LENGTH_MAX, 0),
}
_SCHEMAS: Schema = {
    "Kanaal": _object(_KANAAL, "naam"),
    "PatchedKanaal": _object(_KANAAL),
    "AbonnementKanaal": _object(
        {
            "naam": _text(KANAAL_LENGTH_MAX, pattern=_NAME),
            "filters": {"type": "object", "additionalProperties": _text(VALUE_LENGTH_MAX), "maxProperties": 100},
        },
        "naam",
    ),
    "Abonnement": _object(_ABONNEMENT, "callbackUrl", "auth", "kanalen"),
    "PatchedAbonnement": _object(_ABONNEMENT),
    "Notificatie": _object(_NOTIFICATIE, "kanaal", "hoofdObject", "resource", "resourceUrl", "actie", "aanmaakdatum"),
    "Fout": _object(
        {
            **{name: {"type": "string"} for name in ("type", "code", "title", "detail", "instance")},
            "status": {"type": "integer"},
            "invalidParams": {
                "type": "array",
                "items": _object({name: {"type": "string"} for name in ("name", "code", "reason")}),
            },
        },
        *("type", "code", "title", "status", "detail", "instance"),
    ),
}
