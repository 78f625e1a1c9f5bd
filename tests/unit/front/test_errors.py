"""The table of errors to HTTP."""

import json

import pytest

from fieldpost.core import errors
from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound, Unavailable
from fieldpost.front.http.problems import problem
from fieldpost.link.http.problem import status_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("list.empty", "x"), 422),
        (InvalidInput("json.malformed", "x"), 400),
        (InvalidInput("cursor.invalid", "x"), 400),
        (InvalidInput("http.too_large", "x"), 413),
        (InvalidInput("http.content_type", "x"), 415),
        (NotFound("list.unknown", "x"), 404),
        (Conflict("list.exists", "x"), 409),
        (Denied("auth.required", "x"), 401),
        (Denied("access.role", "x"), 403),
        (Unavailable("store.unavailable", "x"), 503),
    ],
)
def test_an_error_has_its_status(error: FieldpostError, status: int) -> None:
    assert status_of(error) == status


def test_every_kind_of_error_has_a_row() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__base__ is FieldpostError]
    assert len(kinds) >= 6
    for kind in kinds:
        assert 400 <= status_of(kind("any.code", "x")) < 600


def test_a_problem_names_code_field_and_hint() -> None:
    response = problem(InvalidInput("list.empty", "a list needs a target", field="targets", hint="give one"))
    assert response.media_type == "application/problem+json"
    assert json.loads(bytes(response.body)) == {
        "type": "urn:fieldpost:error:list.empty",
        "title": "Unprocessable Entity",
        "status": 422,
        "code": "list.empty",
        "detail": "a list needs a target",
        "field": "targets",
        "hint": "give one",
    }


def test_answer_says_how_long_to_wait() -> None:
    assert int(problem(Unavailable("store.unavailable", "x")).headers["retry-after"]) > 0
