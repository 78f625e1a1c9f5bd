"""The effective settings of a process, each with its default, description and origin."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from fieldpost.core.setting import EffectiveSetting, shown
from fieldpost.run.settings import CentralSettings, load
from fieldpost.run.settings_file import DEFAULT_FILE, PREFIX, given

DEFAULT = "default"
PROGRAM = "the program that started it"
COMMAND_LINE = "command line"

Origins = Mapping[str, str]
"""The origin of each value, by `section.name`; defaults are left out."""


def origins(settings: CentralSettings, file: Path | None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The origin of each value; a value that differs from file and environment is from the command line."""
    read = load(file, environ)
    in_file, in_environment = given(file, environ)
    found = dict.fromkeys(in_file, f"file {file or DEFAULT_FILE}")
    found |= {key: f"environment {variable(*key.split('.', 1))}" for key in in_environment}
    for section, option, value in _options(settings):
        if value != getattr(getattr(read, section), option.name):
            found[f"{section}.{option.name}"] = COMMAND_LINE
    return found


def effective_settings(settings: CentralSettings, origins: Origins | None = None) -> tuple[EffectiveSetting, ...]:
    """Every setting of this process. Without origins, a value other than the default was set by the program."""
    return tuple(_effective(settings, origins))


def variable(section: str, name: str) -> str:
    """The environment variable of this setting."""
    return f"{PREFIX}{section.upper()}__{name.upper()}"


def secret_keys() -> frozenset[str]:
    """The settings that are secrets, as `section.name`."""
    return frozenset(
        f"{section}.{option.name}" for section, option, _ in _options(CentralSettings()) if _is_secret(option)
    )


def field_descriptions(kind: type[Any]) -> dict[str, str]:
    """The description of each field: the string below it in the class. A field without one is an error."""
    (class_,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(class_, ast.ClassDef)
    descriptions = {}
    for statement, following in zip(class_.body, [*class_.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    descriptions[statement.target.id] = " ".join(text.split())
                case _:
                    raise SystemExit(f"{kind.__name__}.{statement.target.id} has no description")
    return descriptions


def _effective(settings: CentralSettings, origins: Origins | None) -> Iterator[EffectiveSetting]:
    descriptions = {section.name: _descriptions(type(getattr(settings, section.name))) for section in fields(settings)}
    for section, option, value in _options(settings):
        is_secret = _is_secret(option)
        otherwise = DEFAULT if origins is not None or value == option.default else PROGRAM
        yield EffectiveSetting(
            section=section,
            name=option.name,
            value=shown(value, is_secret=is_secret),
            default=shown(option.default, is_secret=is_secret),  # type: ignore[arg-type]
            description=descriptions[section].get(option.name, ""),
            origin=(origins or {}).get(f"{section}.{option.name}", otherwise),
            environment=variable(section, option.name),
        )


def _is_secret(option: Field[Any]) -> bool:
    """Fields that a class excludes from its repr are secrets."""
    return not option.repr


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """The descriptions; empty if Fieldpost is installed without its sources."""
    try:
        return field_descriptions(kind)
    except OSError:
        return {}


def _options(settings: CentralSettings) -> Iterator[tuple[str, Field[Any], Any]]:
    for section in fields(settings):
        options = getattr(settings, section.name)
        for option in fields(options):
            yield section.name, option, getattr(options, option.name)
