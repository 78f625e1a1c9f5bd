"""The monitor's settings: `uptime.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class InvalidConfig(Exception):
    """The settings cannot be used; the text names the setting and the rule."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service to check. The certificate of an https address is checked, too."""

    name: str
    group: str
    url: str
    ca_file: str | None = None
    """Certificate authority of the service, if it is not a public one."""

    @property
    def tls_address(self) -> tuple[str, int] | None:
        parts = urlsplit(self.url)
        return (parts.hostname or "", parts.port or 443) if parts.scheme == "https" else None


@dataclass(frozen=True, slots=True)
class Config:
    database: Path
    services: tuple[Service, ...]
    interval_s: float = 60.0
    timeout_s: float = 10.0


def read_config(file: Path) -> Config:
    """Raises InvalidConfig. Relative paths start at the folder of the file."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"cannot read {file}: {error}") from None
    _refuse_unknown(given, {"database", "interval_s", "timeout_s", "service"}, "the settings")
    services = given.get("service")
    if not isinstance(services, list) or not services:
        raise InvalidConfig("add at least one [[service]]")
    made = tuple(_service(one, number, file.parent) for number, one in enumerate(services, 1))
    names = [one.name for one in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidConfig(f"service.name must be unique, {twice[0]!r} is not")
    database = given.get("database", "uptime.db")
    if not isinstance(database, str) or not database:
        raise InvalidConfig(f"database must be the path of a file, got {database!r}")
    seconds = {name: _seconds(given, name) for name in ("interval_s", "timeout_s") if name in given}
    return Config(database=file.parent / database, services=made, **seconds)


def _service(given: object, number: int, folder: Path) -> Service:
    where = f"service {number}"
    if not isinstance(given, dict):
        raise InvalidConfig(f"{where} must be a table: [[service]]")
    _refuse_unknown(given, {one.name for one in fields(Service)}, where)
    for name in ("name", "group", "url", "ca_file"):
        value = given.get(name)
        if name == "ca_file" and value is None:
            continue
        if not isinstance(value, str) or not value:
            raise InvalidConfig(f"{where}: {name} must be a text, got {value!r}")
    try:
        parts = urlsplit(given["url"])
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web:
        raise InvalidConfig(f"{where}: url must be an http or https address, got {given['url']!r}")
    if given.get("ca_file"):
        given["ca_file"] = str(folder / given["ca_file"])
        if not Path(given["ca_file"]).is_file():
            raise InvalidConfig(f"{where}: ca_file {given['ca_file']} does not exist")
    return Service(**given)


def _seconds(given: Mapping[str, Any], name: str) -> float:
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86400:
        raise InvalidConfig(f"{name} must be greater than 0 and at most 86400, got {value!r}")
    return float(value)


def _refuse_unknown(given: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(given) - known):
        raise InvalidConfig(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
