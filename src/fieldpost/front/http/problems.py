"""Problem details as responses of central."""

import msgspec
from starlette.responses import Response

from fieldpost.central.operate.notifications import NotAsSeen
from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.link.http.problem import MEDIA_TYPE, Problem, http_problem_of, problem_headers, problem_of


def without_internals(error: FieldpostError) -> FieldpostError:
    """The error as a caller may read it, who is not known while the store is down: without the driver's message."""
    if isinstance(error, Unavailable) and error.code.startswith("store."):
        return Unavailable(error.code, "the store of central is not available", hint="central's log has the reason")
    return error


def problem(error: FieldpostError) -> Response:
    """The response for an error; a conflict on a notification also names its present status and version."""
    error = without_internals(error)
    if isinstance(error, NotAsSeen):
        current = error.current
        body = problem_of(error, current_status=current.status.value, current_version=current.version)
    else:
        body = problem_of(error)
    return _response(body, problem_headers(error))


def http_problem(status: int, headers: dict[str, str] | None = None) -> Response:
    """The response for an unknown path or method."""
    return _response(http_problem_of(status), headers)


def _response(body: Problem, headers: dict[str, str] | None) -> Response:
    return Response(msgspec.json.encode(body), body.status, headers, MEDIA_TYPE)
