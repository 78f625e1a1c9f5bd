"""Reads the definitions of targets from `site.toml`: external systems and database connections.

Timeouts and retries belong to the definition and not to the message, so that a change also affects buffered messages.
Secrets are in separate files beside `site.toml` and are read when they are used, since they are rotated.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.site.config.database import Database
from fieldpost.site.config.external import External

SECTIONS: Mapping[type[Any], str] = {External: "external", Database: "database"}

D = TypeVar("D", bound=External | Database)


def read_definitions(tables: Mapping[str, Any], kind: type[D], folder: Path, file: Path) -> dict[str, D]:
    """All definitions of one kind, by name. Raises ConfigError naming the file and the invalid key."""
    section = SECTIONS[kind]
    found: dict[str, D] = {}
    keys = defined_keys(kind)
    for name, values in tables.items():
        where = f"{section}.{name}"
        if not isinstance(values, dict):
            raise wrong(file, where, f"must be a section, written [{section}.NAME]")
        for key in values:
            if key not in keys:
                raise wrong(file, f"{where}.{key}", f"is unknown; known keys: {', '.join(keys)}")
        if "url" not in values:
            raise wrong(file, f"{where}.url", "is missing")
        try:
            found[name] = kind(name=name, folder=folder, **values)
        except InvalidInput as error:
            # The message starts with the key.
            key = error.field or ""
            rule = error.message.removeprefix(key).lstrip()
            raise wrong(file, where if key == "name" else f"{where}.{key}", rule) from None
    return found


def defined_keys(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a section: all fields except those that follow from its position."""
    return tuple(name for name in kind.__dataclass_fields__ if name not in ("name", "folder"))


def find_definition(definitions: Mapping[str, D], name: object, kind: type[D]) -> D:
    """The definition with this name. Raises InvalidInput if there is none."""
    section = SECTIONS[kind]
    what = "external system" if kind is External else "database connection"
    found = definitions.get(name) if isinstance(name, str) else None
    if found is None:
        shown = repr(name[:64]) if isinstance(name, str) else type(name).__name__
        known = ", ".join(sorted(definitions)) or "none"
        raise InvalidInput(
            f"{section}.undefined",
            f"site.toml does not define the {what} {shown}; it defines: {known}",
            hint=f"define it as [{section}.NAME] in site.toml",
            field=section,
        )
    return found


def wrong(file: Path, key: str, what: str) -> ConfigError:
    """The error for an invalid key of `site.toml`."""
    return ConfigError("site.settings", f"{file}: {key} {what}", field=key)
