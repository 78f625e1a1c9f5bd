"""`/api/v1/openapi.json`: the OpenAPI document of the API."""

from functools import lru_cache
from typing import Any

import msgspec

from fieldpost.front.auth import Access
from fieldpost.front.http.call import ApiAnswer, Call, FileAnswer
from fieldpost.link.http import openapi
from fieldpost.link.http.endpoint_spec import ID, JSON, NAME, Route, spec
from fieldpost.link.http.openapi import ApiInfo

PATH = "/api/v1/openapi.json"

DESCRIPTION = """\
Store-and-forward notifications from field sites to people. Authenticate with an API token in the header `Authorization:
Bearer TOKEN`; `x-roles` of an operation are the roles of which a caller needs one; operator includes viewer, and admin
includes operator. Unknown body fields and query parameters are rejected by name. Every error response is problem+json
with a stable `code`.

Lists are paged by keyset: pass `next_cursor` of one page as `cursor` to get the next; rows that arrive in between move
nothing. A change names the `version` that the caller has seen; if it is outdated, the answer is 409. Limits: 1 MiB per
body, 8 MiB per file of lists, 500 items and 4 MiB per batch of notifications or events, 200 rows per page."""


@spec({JSON: None})
async def show(_call: Call) -> ApiAnswer:
    """The OpenAPI 3.1 description of this API."""
    return ApiAnswer(FileAnswer(_text(), JSON))


def document() -> dict[str, Any]:
    """The OpenAPI document of central's API."""
    from fieldpost.front.api.routes import ROUTES

    return openapi.document(ROUTES, INFO)


def operation_id(route: Route[Access]) -> str:
    """Noun and verb: the names of module and handler."""
    handler: Any = route.handler
    return f"{handler.__module__.rpartition('.')[2]}_{handler.__name__.rstrip('_')}"


@lru_cache(maxsize=1)
def _text() -> str:
    return msgspec.json.encode(document()).decode()


def _operation(route: Route[Access]) -> dict[str, Any]:
    first = route.path.removeprefix("/api/v1").split("/")[1]
    return {
        "operationId": operation_id(route),
        "tags": [first if route.path.startswith("/api/") else "probes"],
        "x-roles": [] if route.access is Access.ANYONE else [role.value for role in route.access.roles],
        "security": [] if route.access is Access.ANYONE else [{"token": []}],
    }


def _problems(route: Route[Access]) -> set[int]:
    match route.access:
        case Access.ANYONE:
            return set()
        case _:
            return {401, 403}


INFO = ApiInfo(
    title="Fieldpost",
    description=DESCRIPTION,
    token="An API token.",
    path_schemas={
        **dict.fromkeys(("name", "key", "token_id", "session_id"), NAME),
        **dict.fromkeys(("notification_id", "event_id", "action_id", "call_id", "intent_id"), ID),
    },
    operation=_operation,
    problems=_problems,
)
