"""Problem details as responses of central."""

import msgspec
from starlette.responses import Response

from fieldpost.central.operate.notifications import NotAsSeen
from fieldpost.core.errors import FieldpostError
from fieldpost.link.http.problem import MEDIA_TYPE, Problem, http_problem_of, problem_headers, problem_of


def problem(error: FieldpostError) -> Response:
    """The response for an error; a conflict on a notification also names its present status and version."""
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
