"""`fieldpost channels`: the configured ways out."""

import json
from typing import Annotated

import typer

from fieldpost.cli.client import (
    TOKEN_FILE_DEFAULT,
    URL_DEFAULT,
    Client,
    JsonOption,
    RetryOption,
    TokenFileOption,
    UrlOption,
)
from fieldpost.cli.output import print_fields, print_json, print_table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="Channels: configured ways out.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The channel's name.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", help='A setting, name=value; repeatable. Numbers, true and false are such; "1" is a text.'),
]


@app.command()
def add(
    name: NameArgument,
    set_: SetOption,
    type_: Annotated[str, typer.Option("--type", help="The adapter's type.")] = "email",
    default: Annotated[bool, typer.Option("--default", help="Make it the default of its type.")] = False,
    retry: RetryOption = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a channel, e.g. --type email --set host=mail.example.org --set tls=starttls --set from_address=ops@…"""
    body = {"name": name, "type": type_, "settings": _settings(set_), "is_default": default, "retry": retry}
    added = Client(url, token_file).post("channels", body=body)
    if as_json:
        print_json(added)
    else:
        print(f"The channel {name} is there{', the default of its type' if default else ''}.")


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show all channels."""
    found = Client(url, token_file).get("channels")
    if as_json:
        print_json(found)
        return
    print_table(
        ("name", "type", "default", "settings"),
        [(one["name"], one["type"], one["is_default"], _brief(one["settings"])) for one in found["channels"]],
        "There is no channel yet. Add one: fieldpost channels add NAME --type email --set host=… --set tls=… "
        "--set from_address=… --default",
    )


@app.command()
def show(
    name: NameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one channel with its settings; of a secret only that there is one."""
    found = Client(url, token_file).get("channels", name)
    if as_json:
        print_json(found)
        return
    print_fields(
        [
            ("name", found["name"]),
            ("type", found["type"]),
            ("default", found["is_default"]),
            ("version", found["version"]),
            ("retry", found["retry"]),
            *found["settings"].items(),
        ]
    )


@app.command()
def change(
    name: NameArgument,
    set_: SetOption,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Change settings of a channel; the others stay. `--set name=null` takes one back to its default."""
    client = Client(url, token_file)
    settings = _settings(set_)
    version = client.get("channels", name)["version"]
    changed = client.patch("channels", name, body={"settings": settings, "version": version})
    if as_json:
        print_json(changed)
    else:
        print(f"The channel {name} is changed.")


@app.command()
def remove(name: NameArgument, url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT) -> None:
    """Remove a channel that no list names."""
    Client(url, token_file).delete("channels", name)
    print(f"The channel {name} is removed.")


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


def _value(text: str) -> object:
    """A JSON number, true, false, null or quoted text as such, and everything else as the text it is."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value


def _brief(settings: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name in ("host", "port", "from_address"))
