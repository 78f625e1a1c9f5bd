"""The settings that definitions of external systems and database connections share, and their checks."""

import math
import re
import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from fieldpost.core.errors import ConfigError, InvalidInput

NAME_RULE = "must have only letters, digits, - and _, at most 64, and start with a letter"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDefinition:
    """The settings that both kinds of targets have."""

    name: str
    """The section's name, which scripts use: letters, digits, `-` and `_`."""
    folder: Path = field(default=Path(), repr=False)
    """The site's folder; file names are relative to it."""
    url: str
    """The address of the target."""
    ca_file: str | None = None
    """The CA certificate for the target's certificate, if it is a private one; relative to the folder."""
    timeout_s: float = 10.0
    """The limit for one attempt in all, from name resolution to the end of the answer."""
    retry_interval_s: float = 60.0
    """The wait after an attempt that failed temporarily; fixed, at most a day."""
    retries_max: int = 10
    """The number of retries before a call is parked for a person; 0 means no limit."""

    @property
    def retry_interval(self) -> timedelta:
        return timedelta(seconds=self.retry_interval_s)

    @property
    def ca_path(self) -> Path | None:
        return None if self.ca_file is None else self.folder / self.ca_file

    def _check_shared(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not is_name(name):
            raise refused("name", f"is invalid; a name {NAME_RULE}")
        for option, low, high in (
            ("timeout_s", 0.05, 600.0),
            # A due time further away than the longest wait would be mistaken for a jump of the clock.
            ("retry_interval_s", 0.05, 86_400.0),
        ):
            value = getattr(self, option)
            if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
                raise refused(option, f"must be a number from {low} to {high}, got {value!r}")
        if type(self.retries_max) is not int or not 0 <= self.retries_max <= 1_000_000:
            raise refused("retries_max", f"must be an integer from 0 to 1000000, got {self.retries_max!r}")
        check_file_name(self.ca_file, "ca_file")


def is_name(text: str) -> bool:
    """Whether this can be the name of a definition or a statement. SQL cannot, since it has more than one word."""
    return _NAME.fullmatch(text) is not None


def tls_context(ca_path: Path | None) -> ssl.SSLContext | None:
    """A context that trusts this CA file, or None for the system's. Raises ConfigError if the file is unusable."""
    if ca_path is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(ca_path))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("site.ca_file", f"the CA file {ca_path} cannot be read: {error}") from None


def check_file_name(value: object, option: str) -> None:
    if value is not None and (not isinstance(value, str) or not value or "\x00" in value):
        raise refused(option, "must be the name of a file")


def check_type(value: object, kind: type[Any], option: str, what: str) -> None:
    if type(value) is not kind:
        raise refused(option, f"must be {what}")


def refused(option: str, rule: str) -> InvalidInput:
    return InvalidInput("option.invalid", f"{option} {rule}", field=option)
