"""Errors as problem details (RFC 9457): one table of HTTP statuses for both APIs."""

import math
from http import HTTPStatus
from typing import Any

import msgspec

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

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5

# The first row that matches applies: the kind of error and a prefix of its code.
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
    (Unavailable, "link.connections", 429),
    (Unavailable, "link.quota", 429),
    (Unavailable, "receipt.too_many", 429),
    (Unavailable, "zgw.too_many", 429),
    (Unavailable, "site.full", 429),
    (Unavailable, "", 503),
    (ConfigError, "", 500),
    (OperationFailed, "", 502),
)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of every error response."""

    type: str
    """`urn:fieldpost:error:` and the code."""
    title: str
    status: int
    code: str
    """Stable, for programs."""
    detail: str
    """For people."""
    field: str | None = None
    hint: str | None = None
    current_status: str | None = None
    """After a conflict: the status of the notification now."""
    current_version: int | None = None
    call_id: str | None = None
    """The call that was permanently rejected; its status is `failed`."""
    http_status: int | None = None
    """The HTTP status that the external system answered."""


def status_of(error: FieldpostError) -> int:
    return next(s for kind, prefix, s in STATUSES if isinstance(error, kind) and error.code.startswith(prefix))


def wait_of(error: Unavailable) -> float:
    """How many seconds the caller should wait before the next try."""
    return float(getattr(error, "wait_s", RETRY_AFTER_S))


def problem_of(error: FieldpostError, **more: Any) -> Problem:
    status = status_of(error)
    if isinstance(error, OperationFailed):
        more |= {"call_id": error.call_id, "http_status": error.http_status}
    return Problem(
        type=problem_type(error.code),
        title=HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=error.message,
        field=error.field,
        hint=error.hint,
        **more,
    )


def http_problem_of(status: int, detail: str | None = None) -> Problem:
    """A problem found before any route: an unknown path, a method that the path does not have."""
    phrase = HTTPStatus(status).phrase
    codes = {404: "http.no_such_path", 405: "http.method", 413: "http.too_large"}
    code = codes.get(status, "http.error")
    return Problem(type=problem_type(code), title=phrase, status=status, code=code, detail=detail or phrase)


def problem_headers(error: FieldpostError) -> dict[str, str]:
    if isinstance(error, Unavailable):
        return {"Retry-After": str(math.ceil(wait_of(error)))}
    return {"WWW-Authenticate": 'Bearer realm="fieldpost"'} if status_of(error) == HTTPStatus.UNAUTHORIZED else {}
