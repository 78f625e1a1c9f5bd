"""Checks the arguments of a database write when the script makes it, so that the agent can carry it out later."""

import math
from collections.abc import Mapping

from fieldpost.core.errors import InvalidInput
from fieldpost.core.text import truncate
from fieldpost.site.carriers.payloads import DatabaseWrite, Scalar, check_unicode
from fieldpost.site.config.database import Database
from fieldpost.site.config.statements import CALL_ID
from fieldpost.site.config.target import is_name

PARAMETERS_BYTES_MAX = 1024 * 1024


def check_write(
    definition: Database, statement: object, parameters: Mapping[str, Scalar] | None = None
) -> DatabaseWrite:
    """The checked write. Raises InvalidInput naming the argument and its rule."""
    if type(statement) is not str:
        raise InvalidInput("statement.type", "statement must be a str", field="statement")
    found = definition.statement(statement)
    if found is None:
        raise _undefined(definition, statement)
    given = _check_parameters(parameters)
    if CALL_ID in given:
        raise _parameter(CALL_ID, "is set by Fieldpost, not by the caller")
    for name in sorted(found.given - set(given)):
        raise _parameter(name, "is missing; the statement requires it")
    for name in sorted(set(given) - found.given):
        raise _parameter(name, "is not a parameter of the statement")
    return DatabaseWrite(statement, given)


def _check_parameters(parameters: Mapping[str, Scalar] | None) -> dict[str, Scalar]:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise InvalidInput(
            "parameter.invalid",
            f"parameters must be a mapping of names to values, not {type(parameters).__name__}",
            field="parameters",
        )
    size = 0
    for name, value in parameters.items():
        if type(name) is not str or not name.isidentifier():
            raise InvalidInput(
                "parameter.invalid", "parameters must have names of letters, digits and _", field="parameters"
            )
        size += len(name) + _parameter_size(name, value)
    if size > PARAMETERS_BYTES_MAX:
        raise InvalidInput(
            "parameter.too_large",
            f"parameters must be at most {PARAMETERS_BYTES_MAX} bytes, got {size}",
            field="parameters",
        )
    return dict(parameters)


def _parameter_size(name: str, value: object) -> int:
    match value:
        case None | bool():
            return 4
        case int():
            if not -(1 << 63) <= value < 1 << 63:
                raise _parameter(name, "must fit into 64 bits; pass a larger number as text")
            return 20
        case float():
            if not math.isfinite(value):
                raise _parameter(name, f"must be finite, not {value}")
            return 24
        case str():
            if "\x00" in value:
                raise _parameter(name, "must not contain a NUL character")
            return len(check_unicode(value, f"parameters.{name[:64]}").encode())
        case bytes() | bytearray():
            raise _parameter(name, "must not be bytes; pass base64 or hex and decode it in the statement")
        case _:
            raise _parameter(name, f"must be a str, int, float, bool or None, not {type(value).__name__}")


def _undefined(definition: Database, statement: str) -> InvalidInput:
    if is_name(statement) or definition.allows_free_sql:
        known = ", ".join(sorted(definition.statements)) or "none"
        what = (
            f"database.{definition.name} does not define the statement {truncate(statement, 64)!r}; it defines: {known}"
        )
        return InvalidInput("statement.undefined", what, field="statement")
    return InvalidInput(
        "statement.free",
        f"database.{definition.name} accepts only the names of defined statements, not SQL",
        hint=f"define the statement in [database.{definition.name}.statements], or set allows_free_sql = true",
        field="statement",
    )


def _parameter(name: str, rule: str) -> InvalidInput:
    field = f"parameters.{name[:64]}"
    return InvalidInput("parameter.invalid", f"{field} {rule}", field=field)
