"""The settings in force, each with its default, what it is for, and where its value came from."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from fieldpost.core.setting import EffectiveSetting, shown
from fieldpost.run.settings import DEFAULT_FILE, PREFIX, CentralSettings, given, load

DEFAULT = "default"
PROGRAM = "the program that started it"
COMMAND_LINE = "command line"

Origins = Mapping[str, str]
"""Where values come from, by `section.name`; what is not there is the default."""


def origins(settings: CentralSettings, file: Path | None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where the values of these settings came from, of which the command line may have replaced some."""
    read = load(file, environ)
    in_file, in_environment = given(file, environ)
    found = dict.fromkeys(in_file, f"file {file or DEFAULT_FILE}")
    found |= {key: f"environment {variable(*key.split('.', 1))}" for key in in_environment}
    for section, option, value in _options(settings):
        if value != getattr(getattr(read, section), option.name):
            found[f"{section}.{option.name}"] = COMMAND_LINE
    return found


def effective_settings(settings: CentralSettings, origins: Origins | None = None) -> tuple[EffectiveSetting, ...]:
    """Every setting as this process has it; without origins what is no default was set by the program itself."""
    return tuple(_in_force(settings, origins))


def variable(section: str, name: str) -> str:
    """The variable of the environment that sets this."""
    return f"{PREFIX}{section.upper()}__{name.upper()}"


def secret_keys() -> frozenset[str]:
    """The settings that are secrets, as `section.name`."""
    return frozenset(
        f"{section}.{option.name}" for section, option, _ in _options(CentralSettings()) if _is_secret(option)
    )


def field_words(kind: type[Any]) -> dict[str, str]:
    """What is said of each field: the text that stands below it in the class. A field without one is an error."""
    (class_,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(class_, ast.ClassDef)
    words = {}
    for statement, following in zip(class_.body, [*class_.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    words[statement.target.id] = " ".join(text.split())
                case _:
                    raise SystemExit(f"{kind.__name__}.{statement.target.id} has no word on what it means")
    return words


def _in_force(settings: CentralSettings, origins: Origins | None) -> Iterator[EffectiveSetting]:
    words = {section.name: _words_of(type(getattr(settings, section.name))) for section in fields(settings)}
    for section, option, value in _options(settings):
        is_secret = _is_secret(option)
        unsaid = DEFAULT if origins is not None or value == option.default else PROGRAM
        yield EffectiveSetting(
            section=section,
            name=option.name,
            value=shown(value, is_secret=is_secret),
            default=shown(option.default, is_secret=is_secret),  # type: ignore[arg-type]
            says=words[section].get(option.name, ""),
            origin=(origins or {}).get(f"{section}.{option.name}", unsaid),
            environment=variable(section, option.name),
        )


def _is_secret(option: Field[Any]) -> bool:
    """What a class keeps out of its own repr is a secret."""
    return not option.repr


def _words_of(kind: type[Any]) -> dict[str, str]:
    """None where Fieldpost was installed without its sources: a node starts all the same."""
    try:
        return field_words(kind)
    except OSError:
        return {}


def _options(settings: CentralSettings) -> Iterator[tuple[str, Field[Any], Any]]:
    for section in fields(settings):
        room = getattr(settings, section.name)
        for option in fields(room):
            yield section.name, option, getattr(room, option.name)
