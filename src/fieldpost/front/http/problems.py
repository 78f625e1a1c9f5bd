"""Errors to HTTP, in one table: problem+json (RFC 9457) with a stable code, the field, and a hint."""

import http
import math

import msgspec
from starlette.responses import Response

from fieldpost.central.operate.notifications import NotAsSeen
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
from fieldpost.front.allowance import TooMuch

RETRY_AFTER_S = 5

# The first row that fits: the kind of error, and what its code begins with.
STATUSES: tuple[tuple[type[FieldpostError], str, int], ...] = (
    (InvalidInput, "http.content_type", 415),
    (InvalidInput, "http.too_large", 413),
    (InvalidInput, "http.head_too_large", 431),
    (InvalidInput, "http.too_slow", 408),
    (InvalidInput, "http.", 400),
    (InvalidInput, "json.", 400),
    (InvalidInput, "cursor.", 400),
    (InvalidInput, "", 422),
    (NotFound, "", 404),
    (Conflict, "", 409),
    (Denied, "auth.", 401),
    (Denied, "", 403),
    (TooMuch, "", 429),
    (Unavailable, "", 503),
    (ConfigError, "", 500),
    (OperationFailed, "", 502),
)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of every answer that is not a success."""

    type: str
    """Names the code; the reference page of errors has a place for each."""
    title: str
    status: int
    code: str
    detail: str
    field: str | None = None
    hint: str | None = None
    current_status: str | None = None
    current_version: int | None = None


def status_of(error: FieldpostError) -> int:
    return next(s for kind, prefix, s in STATUSES if isinstance(error, kind) and error.code.startswith(prefix))


def wait_of(error: Unavailable) -> float:
    """How long whoever was put off should wait, in seconds."""
    return error.wait_s if isinstance(error, TooMuch) else RETRY_AFTER_S


def problem(error: FieldpostError) -> Response:
    status = status_of(error)
    current = error.current if isinstance(error, NotAsSeen) else None
    body = Problem(
        type=problem_type(error.code),
        title=http.HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        field=error.field,
        hint=error.hint,
        current_status=current.status.value if current else None,
        current_version=current.version if current else None,
    )
    return _response(body, _headers(error))


def http_problem(status: int, headers: dict[str, str] | None = None) -> Response:
    """For what is wrong before any route of ours was found: an unknown path, a method it does not know."""
    phrase = http.HTTPStatus(status).phrase
    code = {404: "http.no_such_path", 405: "http.method"}.get(status, "http.error")
    return _response(Problem(type=problem_type(code), title=phrase, status=status, code=code, detail=phrase), headers)


def _headers(error: FieldpostError) -> dict[str, str]:
    if isinstance(error, Unavailable):
        return {"Retry-After": str(math.ceil(wait_of(error)))}
    return {"WWW-Authenticate": 'Bearer realm="fieldpost"'} if status_of(error) == 401 else {}


def _response(body: Problem, headers: dict[str, str] | None) -> Response:
    return Response(msgspec.json.encode(body), body.status, headers, "application/problem+json")
