"""Profiles: central's address and an API token, kept by `fieldpost login` so that other commands need neither.

A profile is one file in the user's settings folder that only its owner can read. The command line and the environment
take precedence. A profile's token is sent to the profile's own address only.
"""

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from fieldpost.core.errors import ConfigError, InvalidInput, NotFound

DEFAULT = "default"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_chosen: list[str] = []


@dataclass(frozen=True, slots=True)
class Profile:
    """Central's address, and the API token for it."""

    url: str
    token: str
    allow_plain: bool = False
    """Whether the token may be sent over plain HTTP to another machine."""


def choose(name: str | None) -> None:
    """Use this profile for the whole invocation, as `fieldpost --profile NAME` requests."""
    _chosen[:] = [name] if name else []
    if name:
        read(name)


def present() -> Profile | None:
    """The chosen profile, else `default`, else None."""
    return _read(_file(_chosen[0] if _chosen else DEFAULT))


def read(name: str) -> Profile:
    """This profile; NotFound if it does not exist."""
    found = _read(_file(name))
    if found is None:
        raise NotFound("profile.unknown", f"profile {name!r} does not exist", hint="list them: fieldpost profiles")
    return found


def all_profiles() -> list[tuple[str, Profile]]:
    """Every profile with its name, sorted by name."""
    names = sorted(file.stem for file in _folder().glob("*.json"))
    return [(name, profile) for name in names if (profile := _read(_file(name)))]


def remove(name: str) -> None:
    _file(name).unlink()


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        message = f"profile name must be 1 to 64 letters, digits or . _ -, got {name[:64]!r}"
        raise InvalidInput("profile.name", message, field="profile")


def write(name: str, profile: Profile) -> None:
    """Replace the file atomically; at no moment can other users read it."""
    file = _file(name)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as out:
            json.dump(asdict(profile), out)
        beside.replace(file)
    except OSError as error:
        raise ConfigError("profile.unwritable", f"cannot write the profile: {error}") from None


def _folder() -> Path:
    return Path(typer.get_app_dir("fieldpost")) / "profiles"


def _file(name: str) -> Path:
    check_name(name)
    return _folder() / f"{name}.json"


def _read(file: Path) -> Profile | None:
    try:
        content = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("profile.unreadable", f"cannot read the profile {file}: {error}") from None
    try:
        found = json.loads(content)
        return Profile(str(found["url"]), str(found["token"]), found.get("allow_plain") is True)
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            "profile.unreadable", f"the profile {file} is damaged", hint="recreate it: fieldpost login URL"
        ) from None
