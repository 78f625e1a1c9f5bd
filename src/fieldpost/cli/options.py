"""The options that every command shares: `--url`, `--token-file` and `--json`, before or after the command.

They are declared once, in `_shared`, and added to each command when it is loaded. Commands do not receive them as
arguments: `central()` is the API client that they select, and `fieldpost.cli.output` prints text or JSON.

The last value on the command line wins over the environment, the environment over the profile.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli import profiles
from fieldpost.core.errors import ConfigError

if TYPE_CHECKING:
    from fieldpost.link.http.client import ApiClient

URL_DEFAULT = "http://127.0.0.1:8025"
TOKEN_FILE_DEFAULT = Path("fieldpost-data/api-token")
PANEL = "Shared options"


@dataclass
class SharedOptions:
    """Values of the shared options in this invocation; None where an option was not given."""

    url: str | None = None
    token_file: Path | None = None
    json: bool | None = None


given = SharedOptions()


def _keep(name: str) -> Callable[..., Any]:
    """A callback that stores an option's value: a command line overrides, the environment only fills in."""

    def callback(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
        source = context.get_parameter_source(str(parameter.name))
        origin = "DEFAULT" if source is None else source.name
        if origin == "COMMANDLINE" or (origin == "ENVIRONMENT" and getattr(given, name) is None):
            setattr(given, name, value)
        return value

    return callback


def _option(name: str, help: str, envvar: str | None = None) -> Any:
    keep = _keep(name.replace("-", "_"))
    return typer.Option(f"--{name}", envvar=envvar, help=help, callback=keep, rich_help_panel=PANEL)


def _shared(
    url: Annotated[str, _option("url", "Address of central. Overrides the profile.", "FIELDPOST_URL")] = URL_DEFAULT,
    token_file: Annotated[
        Path,
        _option("token-file", "File with the API token. FIELDPOST_TOKEN has precedence.", "FIELDPOST_TOKEN_FILE"),
    ] = TOKEN_FILE_DEFAULT,
    as_json: Annotated[bool, _option("json", "Print JSON instead of text.")] = False,
) -> None:
    """Declares the shared options; never called."""


def add_shared_options(command: Any, *names: str) -> None:
    """Let a command accept these of the shared options: `url`, `token_file`, `as_json`."""
    declaring = typer.Typer()
    declaring.command()(_shared)
    own = {parameter.name for parameter in command.params}
    for parameter in typer.main.get_command(declaring).params:
        if parameter.name in names and parameter.name not in own:
            parameter.expose_value = False
            command.params.append(parameter)


def reset() -> None:
    """Forget the options of an earlier invocation in this process."""
    given.url = given.token_file = given.json = None


def url() -> str:
    """Central's address: from `--url`, the environment, the profile, or this machine."""
    if given.url is not None:
        return given.url
    profile = profiles.present()
    return URL_DEFAULT if profile is None else profile.url


def central(timeout_s: float | None = None) -> "ApiClient":
    """The client of central's API that the options, the environment and the profile select."""
    address = url()
    token = os.environ.get("FIELDPOST_TOKEN") or _profile_token(address) or token_in(_token_file())
    profile = profiles.present()
    allow_plain = profile is not None and profile.url == address and profile.allow_plain
    return client_for(address, token, timeout_s, allow_plain=allow_plain)


def client_for(address: str, token: str, timeout_s: float | None = None, *, allow_plain: bool = False) -> "ApiClient":
    """A client of central's API at this address, with this token."""
    from fieldpost.link.endpoint import Endpoint, check_central_url
    from fieldpost.link.http.client import TIMEOUT_S, ApiClient

    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("cli.token", "the API token contains characters that tokens never have")
    allow_plain = allow_plain or os.environ.get("FIELDPOST_ALLOW_PLAIN", "").lower() == "true"
    endpoint = Endpoint(check_central_url(address), token, allow_plain=allow_plain)
    endpoint.refuse_plain()
    return ApiClient(endpoint, timeout_s or TIMEOUT_S)


def token_in(file: Path) -> str:
    """The token in this file. Tokens are never taken from the command line, which other users can read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            "cli.no_token",
            f"no API token: cannot read {file} ({reason})",
            hint="run `fieldpost login URL`, set FIELDPOST_TOKEN, or give --token-file",
        ) from None


def is_json() -> bool:
    """Whether `--json` was given."""
    return bool(given.json)


def _token_file() -> Path:
    return given.token_file or TOKEN_FILE_DEFAULT


def _profile_token(address: str) -> str | None:
    """The profile's token, unless a token file was named or the profile is for another address."""
    profile = profiles.present() if _token_file() == TOKEN_FILE_DEFAULT else None
    return None if profile is None or profile.url != address else profile.token
