"""`fieldpost sites`: who may send."""

from typing import Annotated

import typer

from fieldpost.cli import site_looks
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
app.command()(site_looks.health)
app.command()(site_looks.events)
app.command()(site_looks.rejected)
app.command()(site_looks.resubmit)
app.command("discard-rejected")(site_looks.discard_rejected)


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
    """Show all sites: whether each is there, what waits at it, and when it was last heard."""
    client = Client(url, token_file)
    if as_json:
        print_json(client.get("sites"))
        return
    print_table(
        ("name", "link", "waiting", "parked", "rejected", "intents", "last heard", "added"),
        [
            (
                one["name"],
                one["link"],
                site_looks.backlog(one),
                one["parked"],
                one["rejected"],
                one["open_intents"],
                moment(one["reported_at"] or one["last_seen_at"]) or "never",
                moment(one["created_at"]),
            )
            for one in client.get("site-health")["sites"]
        ],
        "There is no site yet. Add one: fieldpost sites add NAME",
    )
