"""The error tree.

    FieldpostError
    ├── InvalidInput    a value is invalid; names the field and the rule
    ├── NotFound        the object does not exist or is hidden from the caller
    ├── Conflict        the object is not in the state that the action requires
    ├── Denied          the caller is not authenticated or lacks the permission
    ├── Unavailable     the store, the link or central does not respond; a retry may succeed
    ├── ConfigError     a setting or a file needed at start-up is wrong
    └── OperationFailed a cached call failed permanently while its caller waited

Each error has a stable `code` (`notification.not_parked`), a sentence for people and, if known, a hint on how to fix
it. One table in `link/http/problem.py` maps errors to HTTP, another in `cli/main.py` to exit codes.
"""

from enum import StrEnum
from typing import TypeVar

E = TypeVar("E", bound=StrEnum)


def problem_type(code: str) -> str:
    """The URN of an error code, for the `type` member of problem details (RFC 9457)."""
    return f"urn:fieldpost:error:{code}"


class FieldpostError(Exception):
    """Base class of all errors that Fieldpost raises deliberately."""

    def __init__(self, code: str, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """Stable, for programs: `buffer.full`."""
        self.message = message
        """For people."""
        self.hint = hint
        """How to fix it, if known."""
        self.field = field
        """The invalid argument or setting, if it concerns one."""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(FieldpostError):
    """A value is invalid; `field` names it."""


class NotFound(FieldpostError):
    """The object does not exist or is hidden from the caller."""


class Conflict(FieldpostError):
    """The object is not in the state that the action requires."""


class Denied(FieldpostError):
    """The caller is not authenticated or lacks the permission."""

    actor: str | None = None
    """The caller, if authenticated."""


class Unavailable(FieldpostError):
    """A required system does not respond; a retry may succeed."""


class ConfigError(FieldpostError):
    """A setting or a file needed at start-up is wrong."""


def parse_choice(enum: type[E], text: str, code: str, field: str) -> E:
    """The member with this text, or InvalidInput that names the choices."""
    try:
        return enum(text)
    except ValueError:
        known = ", ".join(enum)
        raise InvalidInput(code, f"{field} must be one of {known}, got {text[:64]!r}", field=field) from None


def out_of_range(key: str, rule: str) -> ConfigError:
    """The error for a setting, such as `watch.stuck_after_s`, that breaks a rule: `must be greater than 0`."""
    return ConfigError("settings.range", f"{key} {rule}", field=key)


class OperationFailed(FieldpostError):
    """A cached call failed permanently while its caller waited; it is not retried."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        field: str | None = None,
        call_id: str | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint, field=field)
        self.call_id = call_id
        """The id of the call, whose status is `failed`."""
        self.http_status = http_status
        """The HTTP status of the external system's response, if there was one."""
