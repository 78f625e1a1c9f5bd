"""Errors in the format of the ZGW APIs: problem details with a code, and with 400 the invalid fields."""

from collections.abc import Mapping
from http import HTTPStatus
from uuid import uuid4

import msgspec
from starlette.responses import Response

from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound, problem_type
from fieldpost.core.zgw.fields import InvalidParam, InvalidParams
from fieldpost.front.auth import REQUIRED
from fieldpost.front.http.problems import without_internals
from fieldpost.link.http.problem import MEDIA_TYPE, problem_headers, status_of

API_VERSION = "1.0.1"
HEADERS = {"API-version": API_VERSION}
TESTS_WAIT_S = "60"
"""After this many seconds an owner without tests has one again."""
_TESTS = "subscription.tests"
_CODES = {
    400: "invalid",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    409: "conflict",
    413: "request_too_large",
    415: "unsupported_media_type",
    429: "throttled",
    431: "request_head_too_large",
    500: "internal",
    503: "unavailable",
}


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The body of every error of this API."""

    type: str
    code: str
    title: str
    status: int
    detail: str
    instance: str
    """A random URN."""
    invalid_params: tuple[InvalidParam, ...] = ()


def fault(error: FieldpostError) -> Response:
    """The response for an error."""
    error = without_internals(error)
    status = _status(error)
    headers = {"Retry-After": TESTS_WAIT_S} if error.code == _TESTS else {}
    if status in (429, 503):
        headers |= problem_headers(error)
    return _response(status, _code(error, status), error.message, headers, _params(error) if status == 400 else ())


def internal_fault(correlation_id: str) -> Response:
    """The response for an unexpected exception."""
    return _response(500, _CODES[500], f"internal error; see {correlation_id} in the log of central", {})


def http_fault(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """The response for an unknown path or method."""
    return _response(status, _CODES.get(status, "error"), HTTPStatus(status).phrase, headers or {})


def _response(
    status: int, code: str, detail: str, headers: Mapping[str, str], params: tuple[InvalidParam, ...] = ()
) -> Response:
    body = Fault(
        type=problem_type(f"zgw.{code}"),
        code=code,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=uuid4().urn,
        invalid_params=params,
    )
    return Response(msgspec.json.encode(body), status, {**HEADERS, **headers}, MEDIA_TYPE)


def _status(error: FieldpostError) -> int:
    match error:
        case InvalidInput():
            # The standard has no 422.
            status = status_of(error)
            return 400 if status == HTTPStatus.UNPROCESSABLE_ENTITY else status
        case Denied():
            return 403
        case Conflict() if error.code == _TESTS:
            return 429
        case _:
            return status_of(error)


def _code(error: FieldpostError, status: int) -> str:
    if isinstance(error, Denied):
        return "not_authenticated" if error.code == REQUIRED else error.code.removeprefix("zgw.")
    if isinstance(error, NotFound | InvalidInput) or error.code == _TESTS:
        return _CODES.get(status, "invalid")
    return _CODES.get(status, error.code)


def _params(error: FieldpostError) -> tuple[InvalidParam, ...]:
    if isinstance(error, InvalidParams):
        return error.params
    return (InvalidParam(error.field or "nonFieldErrors", error.code.rpartition(".")[2], error.message),)
