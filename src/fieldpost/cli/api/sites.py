"""`fieldpost sites`: who may send."""

import shlex
import sys
from typing import Annotated, Any

import typer

from fieldpost.cli.api import site_queries
from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, print_table, say

app = typer.Typer(help="Sites: who may send, each by a token of its own.", no_args_is_help=True)
app.command()(site_queries.health)
app.command()(site_queries.events)
app.command()(site_queries.rejected)
app.command()(site_queries.resubmit)
app.command("discard-rejected")(site_queries.discard_rejected)


SiteNameArgument = Annotated[str, typer.Argument(help="The site's name.")]
ValidOption = Annotated[float, typer.Option("--valid-hours", help="How long the invitation is good for, in hours.")]
CentralOption = Annotated[
    str | None,
    typer.Option("--central", help="Central's address as the site reaches it, if it is not --url.", show_default=False),
]
PrintTokenOption = Annotated[
    bool, typer.Option("--print-token", help="Print a token for `site init` instead of an invitation.")
]


@app.command()
def add(
    name: SiteNameArgument,
    valid_hours: ValidOption = 1.0,
    central: CentralOption = None,
    print_token: PrintTokenOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a site and print the one line to be pasted there, which is good once, and for an hour unless you say so."""
    reached_at = _checked(central or url)
    body = {"name": name, "with_code": not print_token, "valid_s": valid_hours * 3600}
    added = Client(url, token_file).post("sites", body=body)
    if as_json:
        print_json(added)
        return
    print(f"The site {name} is added.")
    _hand_over(added, reached_at, f"./{name}")


@app.command()
def show(
    name: SiteNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show a site and by what it comes in: its tokens, never themselves, and whether an invitation is open."""
    found = Client(url, token_file).get("sites", name)
    if as_json:
        print_json(found)
        return
    invitation = found["enrolment"]
    print_fields(
        [
            ("site", found["name"]),
            ("added", moment(found["created_at"])),
            ("last heard", moment(found["last_seen_at"]) or "never"),
            ("revoked", moment(found["revoked_at"])),
            (
                "invited",
                f"until {moment(invitation['expires_at'])}, by {invitation['created_by']}" if invitation else None,
            ),
        ]
    )
    print()
    print_table(
        ("token", "made", "valid", "ends"),
        [
            (
                f"fp_site_{one['prefix']}_…",
                moment(one["created_at"]),
                one["is_valid"],
                moment(one["revoked_at"] or one["expires_at"]),
            )
            for one in found["tokens"]
        ],
        "It has no token yet.",
    )


@app.command("rotate-token")
def rotate_token(
    name: SiteNameArgument,
    overlap_hours: Annotated[
        float, typer.Option("--overlap-hours", help="How long the tokens that it has go on, in hours.")
    ] = 24.0,
    now: Annotated[bool, typer.Option("--now", help="They end at once.")] = False,
    central: CentralOption = None,
    print_token: PrintTokenOption = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Give a site a new token: prints the one line to be pasted there. A revoked site is taken back by it.

    The tokens that it has go on for a day, so that nothing is lost until the line has been pasted.
    """
    reached_at = _checked(central or url)
    body = {"overlap_s": 0 if now else overlap_hours * 3600, "with_code": not print_token}
    rotated = Client(url, token_file).post("sites", name, "rotate-token", body=body)
    if as_json:
        print_json(rotated)
        return
    ends = "are worth nothing any more" if now else f"end in {overlap_hours:g} hours"
    print(f"The tokens that the site {name} has {ends}.")
    _hand_over(rotated, reached_at, "ITS-FOLDER")


@app.command()
def revoke(
    name: SiteNameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on the terminal first.")] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Take nothing from a site any more; all that it sent stays, and can be managed. `rotate-token` takes it back."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Take nothing from the site {name} any more?", abort=True, err=True)
    revoked = Client(url, token_file).post("sites", name, "revoke", body={})
    back = f"fieldpost sites rotate-token {shlex.quote(name)}"
    say(revoked, as_json, f"The site {name} is revoked. Take it back: {back}")


def _checked(central: str) -> str:
    """The address for the line to be pasted, looked at before anything is done: the line shows once."""
    from fieldpost.link.endpoint import check_central_url

    return check_central_url(central)


def _hand_over(given: dict[str, Any], central: str, folder: str) -> None:
    """What is to be pasted at the site."""
    if "token" in given:
        print(f"Its token, shown only now:\n\n    {given['token']}\n")
        print("At the site, run this and paste the token when it is asked for:\n")
        name = shlex.quote(given["name"])
        print(f"    fieldpost site init {shlex.quote(folder)} --name {name} --central {shlex.quote(central)}")
        return
    print(f"Paste this at the site; it is good once, until {moment(given['expires_at'])}:\n")
    print(f"    fieldpost site join {shlex.quote(given['code'] + '@' + central)} --folder {shlex.quote(folder)}")


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
                "revoked" if one["revoked_at"] else one["link"],
                site_queries.backlog(one),
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
