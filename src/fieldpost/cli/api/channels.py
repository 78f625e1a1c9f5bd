"""`fieldpost channels`: the configured ways out."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, RetryOption, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, print_fields, print_json, print_lines, say, show_fields, show_table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="Channels: configured ways out.", no_args_is_help=True)

TEST_S = 150.0
ChannelNameArgument = Annotated[str, typer.Argument(help="The channel's name.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", help='A setting, name=value; repeatable. Numbers, true and false are such; "1" is a text.'),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", help="A secret to ask for, e.g. password; from a pipe, one line each. It is never shown again."
    ),
]
SecretFileOption = Annotated[
    list[str] | None, typer.Option("--secret-file", help="A secret from a file, name=file; repeatable.")
]


@app.command()
def add(
    name: ChannelNameArgument,
    set_: SetOption,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    type_: Annotated[str, typer.Option("--type", help="The adapter's type.")] = "email",
    default: Annotated[bool, typer.Option("--default", help="Make it the default of its type.")] = False,
    retry: RetryOption = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a channel, e.g. --type email --set host=mail.example.org --set tls=starttls --set from_address=ops@…"""
    body = {
        "name": name,
        "type": type_,
        "settings": _settings(set_),
        "secrets": _secrets(secret or [], secret_file or []),
        "is_default": default,
        "retry": retry,
    }
    added = Client(url, token_file).post("channels", body=body)
    if as_json:
        print_json(added)
    else:
        print(f"The channel {name} is there{', the default of its type' if default else ''}.")
        _warn(added)


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show all channels."""
    found = Client(url, token_file).get("channels")
    show_table(
        found,
        as_json,
        ("name", "type", "default", "settings"),
        [(one["name"], one["type"], one["is_default"], _brief(one["settings"])) for one in found["channels"]],
        "There is no channel yet. Add one: fieldpost channels add NAME --type email --set host=… --set tls=… "
        "--set from_address=… --default",
    )


@app.command()
def show(
    name: ChannelNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one channel with its settings; of a secret only that there is one."""
    found = Client(url, token_file).get("channels", name)
    show_fields(
        found,
        as_json,
        [
            ("name", found["name"]),
            ("type", found["type"]),
            ("default", found["is_default"]),
            ("version", found["version"]),
            ("retry", found["retry"]),
            *found["settings"].items(),
            *((name, f"({state})") for name, state in found["secrets"].items()),
            *(("warning", warning) for warning in found["warnings"]),
        ],
    )


@app.command()
def change(
    name: ChannelNameArgument,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, name=value; name=null takes it back to its default; repeatable."),
    ] = None,
    secret: SecretOption = None,
    secret_file: SecretFileOption = None,
    clear_secret: Annotated[list[str] | None, typer.Option(help="A secret to take away; repeatable.")] = None,
    default: Annotated[
        bool | None, typer.Option("--default/--no-default", help="Whether it is the default of its type.")
    ] = None,
    retry: RetryOption = None,
    inherit_retry: Annotated[bool, typer.Option("--inherit-retry", help="Try again as its settings say.")] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change settings, secrets or policy of a channel; the rest stays, secrets too."""
    client = Client(url, token_file)
    settings = _settings(set_ or [])
    secrets: dict[str, object] = {**_secrets(secret or [], secret_file or []), **dict.fromkeys(clear_secret or [])}
    body: dict[str, Any] = {"settings": settings, "secrets": secrets}
    if default is not None:
        body["is_default"] = default
    if retry is not None or inherit_retry:
        body["retry"] = retry
    if len(body) == 2 and not settings and not secrets:
        raise InvalidInput("cli.nothing", "nothing to change was given")
    body["version"] = client.get("channels", name)["version"]
    changed = client.patch("channels", name, body=body)
    if as_json:
        print_json(changed)
    else:
        print(f"The channel {name} is changed.")
        _warn(changed)


@app.command("test")
def try_out(
    name: ChannelNameArgument,
    to: Annotated[str, typer.Option("--to", help="Whom to send a test to, e.g. your own mail address.")],
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Send a test by a channel and show what was said, without secrets. For administrators; it is audited."""
    tested = Client(url, token_file, timeout_s=TEST_S).post("channels", name, "test", body={"to": to})
    if as_json:
        print_json(tested)
    else:
        print_lines(tested["said"])
        print_fields([("outcome", tested["outcome"]), ("error", tested["error"])])
    if tested["outcome"] != "delivered":
        raise typer.Exit(1)


@app.command()
def remove(
    name: ChannelNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Remove a channel that no list uses."""
    Client(url, token_file).delete("channels", name)
    say({"name": name, "is_removed": True}, as_json, f"The channel {name} is removed.")


def _warn(channel: dict[str, Any]) -> None:
    for warning in channel["warnings"]:
        print(f"Warning: {warning}.", file=sys.stderr)


def _settings(given: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput("cli.set", f"--set takes name=value, not {name[:64]!r}", field="--set")
        if name in settings:
            raise InvalidInput("cli.set", f"--set gives {name[:64]} twice", field="--set")
        settings[name] = _value(value)
    return settings


def _secrets(asked: list[str], files: list[str]) -> dict[str, str]:
    """Secrets come from a terminal, a pipe or a file, and never from the command line, which others can read."""
    import getpass

    secrets: dict[str, str] = {}
    for name in asked:
        if "=" in name:
            raise InvalidInput("cli.secret", "--secret takes a name alone, and asks for the secret", field="--secret")
        secrets[name] = getpass.getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    for given in files:
        name, equals, file = given.partition("=")
        if not equals or not name:
            raise InvalidInput("cli.secret", "--secret-file takes name=file", field="--secret-file")
        try:
            secrets[name] = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise InvalidInput("cli.secret", f"{file} cannot be read: {reason}", field="--secret-file") from None
    for name, secret in secrets.items():
        if not secret:
            raise InvalidInput("cli.secret", f"{name} is empty; --clear-secret takes one away", field="--secret")
    return secrets


def _value(text: str) -> object:
    """A JSON number, true, false, null or quoted text as such, and everything else as the text it is."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value


def _brief(settings: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name in ("host", "port", "from_address"))
