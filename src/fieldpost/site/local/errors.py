"""The local API's errors as HTTP responses: problem+json, with the error codes used everywhere."""

import http

import msgspec
from aiohttp import web

from fieldpost.core.errors import (
    ConfigError,
    Conflict,
    Denied,
    FieldpostError,
    InvalidInput,
    NotFound,
    OperationFailed,
    Unavailable,
    problem_type,
)
from fieldpost.site.local.schemas import LocalProblem

RETRY_AFTER_S = 5

# The first matching row applies: error class and prefix of its code.
STATUSES: tuple[tuple[type[FieldpostError], str, int], ...] = (
    (InvalidInput, "http.content_type", 415),
    (InvalidInput, "http.too_large", 413),
    (InvalidInput, "http.", 400),
    (InvalidInput, "json.", 400),
    (InvalidInput, "", 422),
    (NotFound, "", 404),
    (Conflict, "", 409),
    (Denied, "auth.", 401),
    (Denied, "", 403),
    (Unavailable, "", 503),
    (OperationFailed, "", 502),
    (ConfigError, "", 500),
)


def status_of(error: FieldpostError) -> int:
    return next(s for kind, prefix, s in STATUSES if isinstance(error, kind) and error.code.startswith(prefix))


def problem(error: FieldpostError) -> web.Response:
    """The response for this error."""
    status = status_of(error)
    body = LocalProblem(
        type=problem_type(error.code),
        title=http.HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        field=error.field,
        hint=error.hint,
        call_id=error.call_id if isinstance(error, OperationFailed) else None,
        http_status=error.http_status if isinstance(error, OperationFailed) else None,
    )
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="fieldpost"'
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    return response(body, headers)


def http_problem(status: int, detail: str | None = None) -> web.Response:
    """The response for errors before routing: an unknown path or a wrong method."""
    phrase = http.HTTPStatus(status).phrase
    code = {404: "http.no_such_path", 405: "http.method", 413: "http.too_large"}.get(status, "http.error")
    return response(
        LocalProblem(type=problem_type(code), title=phrase, status=status, code=code, detail=detail or phrase), {}
    )


def response(body: LocalProblem, headers: dict[str, str]) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=body.status, headers=headers, content_type="application/problem+json"
    )
