"""Reading settings from a TOML file and the environment, for any process.

The settings of a process are a dataclass whose fields are sections, each a dataclass of options with defaults:
`FIELDPOST_DISPATCH__INTERVAL_S` in the environment is `interval_s` of the section `[dispatch]` and has precedence over
the file. An unknown key or a value of the wrong type is an error that names it: a setting that is silently ignored is
worse than none. Processes may share a file; each skips the sections of the others.
"""

import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from fieldpost.core.errors import ConfigError

DEFAULT_FILE = Path("fieldpost.toml")
FILE_BYTES_MAX = 1024 * 1024
PREFIX = "FIELDPOST_"
# Read by the command line, not settings.
_OTHERS = {"URL", "TOKEN", "TOKEN_FILE", "FOLDER", "SITE_TOKEN", "TRACEBACK", "ALLOW_PLAIN"}


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """[log]"""

    level: str = "info"
    """debug, info, warning or error."""
    json: bool = False
    """Log in JSON."""


def read_settings(
    kind: type[S], file: Path | None, environ: Mapping[str, str] | None = None, *, others: Collection[str] = ()
) -> S:
    """The settings from this file (by default ./fieldpost.toml, if it exists) and the environment.

    `others` are sections of other processes, which are skipped.
    """
    found = {name: table for name, table in _read_file(file).items() if name not in others}
    sections = {section.name: section for section in fields(kind)}  # type: ignore[arg-type]
    for name, value in _from_environment(os.environ if environ is None else environ).items():
        section, _, key = name.partition(".")
        if section in sections:
            table = found.setdefault(section, {})
            if isinstance(table, dict):
                table[key] = value
        elif section not in others:
            raise ConfigError(
                "settings.unknown", f"{PREFIX}{section.upper()}__… does not name a section of the settings"
            )
    options: dict[str, Any] = {}
    for name, table in found.items():
        if name not in sections:
            raise ConfigError(
                "settings.unknown", f"[{name}] is not a section of the settings", hint=f"known: {', '.join(sections)}"
            )
        default = sections[name].default_factory
        assert default is not MISSING, "every section has a default"
        options[name] = _read_section(type(default()), name, table)
    return kind(**options)


def given(file: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[set[str], set[str]]:
    """The settings given in the file and in the environment, as `section.name`."""
    return set(in_file(file)), set(_from_environment(os.environ if environ is None else environ))


def in_file(file: Path | None = None) -> dict[str, Any]:
    """The values in the file, by `section.name`."""
    tables = {name: table for name, table in _read_file(file).items() if isinstance(table, dict)}
    return {f"{section}.{name}": value for section, table in tables.items() for name, value in table.items()}


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or DEFAULT_FILE
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError("settings.file", f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if file is None:
            return {}
        raise ConfigError("settings.file", f"settings file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("settings.file", f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("settings.file", f"{path} is not TOML: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, "_Text"]:
    found = {}
    for name, value in environ.items():
        if name.startswith(PREFIX) and "__" in name and name.removeprefix(PREFIX) not in _OTHERS:
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            found[f"{section}.{key}"] = _Text(value)
    return found


class _Text(str):
    """A value from the environment, converted to a number or boolean where the setting needs one."""


def _read_section(kind: type[Any], section: str, table: object) -> Any:
    if not isinstance(table, dict):
        raise ConfigError("settings.type", f"[{section}] must be a section", field=section)
    hints = get_type_hints(kind)
    known = [f.name for f in fields(kind)]
    values = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                "settings.unknown",
                f"{section}.{key} is not a setting",
                hint=f"settings of [{section}]: {', '.join(known)}",
                field=f"{section}.{key}",
            )
        try:
            plain = str(value) if isinstance(value, _Text) else value
            values[key] = msgspec.convert(plain, hints[key], strict=not isinstance(value, _Text))
        except msgspec.ValidationError as error:
            raise ConfigError("settings.type", f"{section}.{key}: {error}", field=f"{section}.{key}") from None
    return kind(**values)
