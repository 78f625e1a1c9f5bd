"""What can go wrong, as a small tree.

    FieldpostError
    ├── InvalidInput    what was given breaks a rule; names the field and the rule
    ├── NotFound        there is no such thing, or none that the caller may see
    ├── Conflict        it is there, but not in the state that the act needs
    ├── Denied          the caller has not shown who he is, or may not do this
    ├── Unavailable     not now: the store, the link or central does not answer; trying again may help
    ├── ConfigError     a setting or file that this process starts from is wrong
    └── OperationFailed a cached call was refused for good while its caller waited

Each instance carries a stable `code` (`notification.not_parked`), a sentence for people and, where one is known, a hint
on what to do. One table in `front/http/problems.py` maps them to HTTP (at a site `site/local/errors.py`),
another in `cli/main.py` to exit codes.
"""


def problem_type(code: str) -> str:
    """A code as a name that is unique in the world, which the `type` of a problem (RFC 9457) has to be."""
    return f"urn:fieldpost:error:{code}"


class FieldpostError(Exception):
    """The root of all errors that Fieldpost raises on purpose."""

    def __init__(self, code: str, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        """Stable, for programs: `buffer.full`."""
        self.message = message
        """For people."""
        self.hint = hint
        """What to do, where that is known."""
        self.field = field
        """Which argument or setting it is about, where it is about one."""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidInput(FieldpostError):
    """What was given breaks a rule; `field` names where."""


class NotFound(FieldpostError):
    """There is no such thing, or none that the caller may see."""


class Conflict(FieldpostError):
    """It is there, but not in the state that the act needs."""


class Denied(FieldpostError):
    """The caller has not shown who he is, or may not do this."""


class Unavailable(FieldpostError):
    """Not now; trying again may help."""


class ConfigError(FieldpostError):
    """A setting or file that this process starts from is wrong."""


class OperationFailed(FieldpostError):
    """A cached call was refused for good while its caller waited; nothing of it is tried again."""

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
        """The operation, whose status is `failed`."""
        self.http_status = http_status
        """What the external system answered, where it did."""
