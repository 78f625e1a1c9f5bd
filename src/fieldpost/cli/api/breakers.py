"""`fieldpost breakers`: which ways out are blocked, and letting one go on."""

from typing import Annotated

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, say, show_table

app = typer.Typer(help="Breakers: what keeps a failing channel from being called.", no_args_is_help=True)


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show the breakers of all channels that ever failed."""
    found = Client(url, token_file).get("breakers")
    show_table(
        found,
        as_json,
        ("breaker", "health", "failures", "next probe", "last error"),
        [
            (one["key"], one["health"], one["failures"], moment(one["open_until"]), one["last_error"])
            for one in found["breakers"]
        ],
        "No channel has failed yet.",
    )


@app.command()
def reset(
    key: Annotated[str, typer.Argument(help="The breaker, e.g. channel:mail.")],
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Close a breaker and forget its failures; what it held comes free in batches."""
    closed = Client(url, token_file).post("breakers", key, "reset", body={})
    say(closed, as_json, f"The breaker {key} is closed.")
