"""Errors carry a stable code and a sentence that a person can use."""

import pytest

from fieldpost.core import errors
from fieldpost.core.errors import FieldpostError

KINDS = [
    errors.InvalidInput,
    errors.NotFound,
    errors.Conflict,
    errors.Denied,
    errors.Unavailable,
    errors.ConfigError,
    errors.OperationFailed,
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_has_code_message_hint_and_field(kind: type[FieldpostError]) -> None:
    error = kind("thing.broken", "the thing is broken", hint="mend it", field="thing")
    assert isinstance(error, FieldpostError)
    assert (error.code, error.message, error.hint, error.field) == (
        "thing.broken",
        "the thing is broken",
        "mend it",
        "thing",
    )
    assert str(error) == "the thing is broken (mend it)"
    assert str(kind("thing.broken", "the thing is broken")) == "the thing is broken"


def test_error_classes_are_exactly_the_listed_kinds() -> None:
    assert set(FieldpostError.__subclasses__()) >= set(KINDS)
    ours = {kind for kind in FieldpostError.__subclasses__() if kind.__module__ == "fieldpost.core.errors"}
    assert ours == set(KINDS)
