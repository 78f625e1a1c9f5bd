"""`fieldpost login`, `logout`, `profiles`: where central is and by which token, kept so that no command need be told.

A profile is one file that only its owner may read, in the user's folder of settings. What is given on the command line
or by the environment wins over it. Its token goes to its own address and to no other.
"""

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.output import JsonOption, print_json, print_table, say
from fieldpost.core.errors import ConfigError, InvalidInput, NotFound

DEFAULT = "default"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

ProfileOption = Annotated[str, typer.Option("--profile", help="The profile's name.")]

_chosen: list[str] = []


@dataclass(frozen=True, slots=True)
class Profile:
    """Central's address, and the API token for it."""

    url: str
    token: str


def choose(name: str | None) -> None:
    """Use this profile in all that follows, as `fieldpost --profile NAME` says; it must be there."""
    _chosen[:] = [name] if name else []
    if name and present() is None:
        raise NotFound("profile.unknown", f"there is no profile {name!r}", hint="see fieldpost profiles")


def present() -> Profile | None:
    """The profile to be used: the one that was chosen, else `default`, else none."""
    return _read(_file(_chosen[0] if _chosen else DEFAULT))


def login(
    url: Annotated[str, typer.Argument(help="Central's address, e.g. https://fieldpost.example.org.")],
    profile: ProfileOption = DEFAULT,
    token_file: Annotated[
        Path | None, typer.Option(help="The file with the API token; else FIELDPOST_TOKEN, or it is asked for.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep central's address and an API token in a profile, so that no other command need be told.

    An administrator makes a token by `fieldpost tokens add`; central's first start wrote one to
    fieldpost-data/api-token. Use another profile than `default` by `fieldpost --profile NAME …`.
    """
    from fieldpost.cli.client import Client

    _check_name(profile)
    token = os.environ.get("FIELDPOST_TOKEN") or _given(token_file)
    me = Client(url, Path(), token=token).get("me")
    _write(_file(profile), Profile(url, token))
    say(
        {"profile": profile, "url": url, "name": me["name"], "role": me["role"]},
        as_json,
        f"Logged in at {url} as {me['name']}, who is {me['role']}; kept as the profile {profile}.",
    )


def logout(
    profile: ProfileOption = DEFAULT,
    revoke: Annotated[bool, typer.Option("--revoke", help="Make the token worthless, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Forget a profile. Its token stays good, unless it is revoked."""
    from fieldpost.cli.client import Client

    file = _file(profile)
    found = _read(file)
    if found is None:
        raise NotFound("profile.unknown", f"there is no profile {profile!r}", hint="see fieldpost profiles")
    if revoke:
        Client(found.url, Path(), token=found.token).delete("tokens", found.token.split("_")[2])
    file.unlink()
    text = f"The profile {profile} is forgotten{', and its token is revoked' if revoke else ''}."
    say({"profile": profile, "is_revoked": revoke}, as_json, text)


def profiles(as_json: JsonOption = False) -> None:
    """Show the profiles that there are; never their tokens."""
    names = sorted(file.stem for file in _folder().glob("*.json"))
    found = [(name, profile.url) for name in names if (profile := _read(_file(name)))]
    if as_json:
        print_json({"profiles": [{"name": name, "url": url} for name, url in found]})
        return
    print_table(("profile", "central"), found, "There is no profile yet. Make one: fieldpost login URL")


def _folder() -> Path:
    return Path(typer.get_app_dir("fieldpost")) / "profiles"


def _file(name: str) -> Path:
    _check_name(name)
    return _folder() / f"{name}.json"


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput("profile.name", "a profile's name is 1 to 64 letters, digits or . _ -", field="profile")


def _given(token_file: Path | None) -> str:
    from fieldpost.cli.client import token_in

    if token_file is not None:
        return token_in(token_file)
    return str(typer.prompt("API token", hide_input=True)).strip()


def _read(file: Path) -> Profile | None:
    try:
        content = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("profile.unreadable", f"the profile {file} cannot be read: {error}") from None
    try:
        found = json.loads(content)
        return Profile(str(found["url"]), str(found["token"]))
    except (ValueError, TypeError, KeyError):
        raise ConfigError(
            "profile.unreadable", f"the profile {file} is damaged", hint="make it anew: fieldpost login URL"
        ) from None


def _write(file: Path, profile: Profile) -> None:
    """The file whole or not at all, and never readable for others, not even for a moment."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as out:
            json.dump(asdict(profile), out)
        beside.replace(file)
    except OSError as error:
        raise ConfigError("profile.unwritable", f"the profile cannot be kept: {error}") from None
