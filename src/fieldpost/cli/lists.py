"""`fieldpost lists`: who hears of what."""

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

app = typer.Typer(help="Lists: named sets of targets.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The list's name.")]


@app.command()
def add(
    name: NameArgument,
    target: Annotated[list[str], typer.Option("--target", "-t", help="A target, e.g. a mail address; repeatable.")],
    type_: Annotated[str, typer.Option("--type", help="What kind of targets: the adapter's type.")] = "email",
    channel: Annotated[
        str | None, typer.Option(help="The channel to use; else the default of the type.", show_default=False)
    ] = None,
    park_uncertain: Annotated[
        bool, typer.Option("--park-uncertain", help="Park what may have arrived, instead of sending it again.")
    ] = False,
    retry: RetryOption = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a list."""
    body = {
        "name": name,
        "type": type_,
        "targets": target,
        "channel": channel,
        "park_uncertain": park_uncertain,
        "retry": retry,
    }
    added = Client(url, token_file).post("lists", body=body)
    if as_json:
        print_json(added)
    else:
        print(f"The list {name} has {_count(added['targets'])}.")


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show all lists."""
    found = Client(url, token_file).get("lists")
    if as_json:
        print_json(found)
        return
    print_table(
        ("name", "type", "channel", "targets"),
        [(one["name"], one["type"], one["channel"] or "(default)", _brief(one["targets"])) for one in found["lists"]],
        "There is no list yet. Add one: fieldpost lists add NAME --target someone@example.org",
    )


@app.command()
def show(
    name: NameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one list with all its targets."""
    found = Client(url, token_file).get("lists", name)
    if as_json:
        print_json(found)
        return
    print_fields(
        [
            ("name", found["name"]),
            ("type", found["type"]),
            ("channel", found["channel"] or "(default of its type)"),
            ("park uncertain", found["park_uncertain"]),
            ("retry", found["retry"] or "(the channel's)"),
            *(("target", address) for address in found["targets"]),
        ]
    )


@app.command()
def remove(name: NameArgument, url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT) -> None:
    """Remove a list. Notifications that come for it later are parked, naming it."""
    Client(url, token_file).delete("lists", name)
    print(f"The list {name} is removed.")


def _brief(targets: list[str]) -> str:
    return ", ".join(targets[:3]) + (f" and {len(targets) - 3} more" if len(targets) > 3 else "")


def _count(targets: list[str]) -> str:
    return f"{len(targets)} target{'' if len(targets) == 1 else 's'}"
