"""`fieldpost settings`: what a central node works by."""

from typing import Annotated

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, show_table

app = typer.Typer(help="The settings in force on the central node that answers.", no_args_is_help=True)


@app.command()
def show(
    changed: Annotated[bool, typer.Option("--changed", help="Only those that are not at their default.")] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show every setting with its value, its default, and where the value came from. Needs the role admin."""
    found = Client(url, token_file).get("settings")
    found["settings"] = [one for one in found["settings"] if not (changed and one["is_default"])]
    show_table(
        found,
        as_json,
        ("setting", "value", "default", "from"),
        [(f"{one['section']}.{one['name']}", one["value"], one["default"], one["origin"]) for one in found["settings"]],
        "Every setting is at its default.",
    )
