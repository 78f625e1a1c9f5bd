"""Effective settings of a node: value, default and origin."""

import json
import re
import stat
from collections.abc import Container, Mapping
from dataclasses import dataclass

from fieldpost.core.secret import HIDDEN

Value = str | int | float | bool

_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):\S*@")
_PARAMETER = re.compile(r"([?&]\w*password=)[^&\s]*", re.IGNORECASE)
_UNITS = {
    "bytes_per_s": "bytes per second",
    "_per_s": "per second",
    "_s": "seconds",
    "_h": "hours",
    "_days": "days",
    "_bytes": "bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    section: str
    name: str
    value: Value
    """Three asterisks if it is a secret."""
    default: Value
    description: str
    """The description of the setting."""
    origin: str
    """Where the value comes from: the default, a file, the environment, the command line."""
    environment: str
    """The environment variable that sets it."""

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def unit(self) -> str | None:
        """The unit, from the suffix of the name."""
        return next((unit for suffix, unit in _UNITS.items() if self.name.endswith(suffix)), None)

    @property
    def is_default(self) -> bool:
        return self.value == self.default


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The settings of one node, read once at its start."""

    node_id: str = ""
    settings: tuple[EffectiveSetting, ...] = ()


def open_secrets(mode: int, values: Mapping[str, Value], secret_keys: Container[str]) -> tuple[str, ...]:
    """Keys of secrets in a settings file of this mode that every user of the machine can read.

    Includes URLs with a password. Access by the file's group is accepted as intended.
    """
    if not mode & stat.S_IROTH:
        return ()
    return tuple(key for key, value in values.items() if shown(value, is_secret=key in secret_keys) != value)


def shown(value: Value, *, is_secret: bool) -> Value:
    """The value for display: secrets and passwords in URLs are replaced by three asterisks."""
    if not isinstance(value, str) or not value:
        return value
    if is_secret:
        return HIDDEN
    return _PARAMETER.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}@", value))


def parse_scalar(text: str) -> object:
    """A JSON number, true, false, null or string; any other text unchanged."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value
