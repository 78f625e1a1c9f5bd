"""`fieldpost sites`: who may send."""

from typing import Annotated

import typer

from fieldpost.cli.client import (
    TOKEN_FILE_DEFAULT,
    URL_DEFAULT,
    Client,
    JsonOption,
    TokenFileOption,
    UrlOption,
)
from fieldpost.cli.output import moment, print_json, print_table

app = typer.Typer(help="Sites: who may send, each by a token of its own.", no_args_is_help=True)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="The site's name.")],
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a site and print its token, which cannot be shown again."""
    import shlex

    added = Client(url, token_file).post("sites", body={"name": name})
    if as_json:
        print_json(added)
        return
    print(f"The site {name} may send. Its token, shown only now:\n\n    {added['token']}\n")
    print("At the site, run this and paste the token when it is asked for:\n")
    print(f"    fieldpost site init {shlex.quote('./' + name)} --name {shlex.quote(name)} --central {shlex.quote(url)}")


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show all sites, and when each was last heard."""
    found = Client(url, token_file).get("sites")
    if as_json:
        print_json(found)
        return
    print_table(
        ("name", "added", "last heard"),
        [(one["name"], moment(one["created_at"]), moment(one["last_seen_at"]) or "never") for one in found["sites"]],
        "There is no site yet. Add one: fieldpost sites add NAME",
    )
