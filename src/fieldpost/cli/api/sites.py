"""`fieldpost sites`: the sites that may send to central."""

import shlex
import sys
from typing import Annotated, Any

import typer

from fieldpost.cli.api import site_queries
from fieldpost.cli.arguments import SiteArgument, YesOption
from fieldpost.cli.options import central as central_client
from fieldpost.cli.options import is_json, url
from fieldpost.cli.output import columns, done, moment, or_never, print_json, print_rows, show_fields, show_table, table

app = typer.Typer(help="Sites that may send to central.", no_args_is_help=True)

ValidOption = Annotated[float, typer.Option("--valid-hours", help="Lifetime of the invitation in hours.")]
CentralOption = Annotated[
    str | None, typer.Option("--central", help="Address of central as the site sees it.  [default: --url]")
]
PrintTokenOption = Annotated[
    bool, typer.Option("--print-token", help="Print a token for `site init` instead of an invitation.")
]

SITES = table(
    "sites",
    "name",
    ("state", site_queries.condition),
    ("waiting", site_queries.backlog),
    "parked rejected intents=open_intents",
    ("last report", or_never("reported_at")),
    "added=created_at",
    empty="No sites yet. Add one: fieldpost sites add NAME",
)
SITE = columns(
    "site=name",
    ("state", site_queries.condition),
    "added=created_at",
    ("last report", or_never("reported_at")),
    ("last connection", or_never("last_seen_at")),
    "revoked=revoked_at",
)
TOKENS = columns(
    ("token", lambda one: f"fp_site_{one['prefix']}_…"),
    "created=created_at valid=is_valid",
    ("ends", lambda one: moment(one["revoked_at"] or one["expires_at"])),
)


@app.command()
def add(
    name: SiteArgument,
    valid_hours: ValidOption = 1.0,
    central: CentralOption = None,
    print_token: PrintTokenOption = False,
) -> None:
    """Add a site and print the command to run there. The invitation in it works once."""
    address = _checked(central or url())
    body = {"name": name, "with_code": not print_token, "valid_s": valid_hours * 3600}
    added = central_client().post("sites", body=body)
    _print_invitation(added, address, f"./{name}", f"Added site {name}.")


@app.command("list")
def list_() -> None:
    """List all sites with their state, backlog and last report."""
    client = central_client()
    show_table(client.get("sites") if is_json() else client.get("site-health"), SITES)


@app.command()
def show(name: SiteArgument) -> None:
    """Show a site, its token prefixes and its open invitation."""
    client = central_client()
    found = client.get("sites", name)
    if is_json():
        print_json(found)
        return
    invitation = found["enrolment"]
    invited = f"until {moment(invitation['expires_at'])}, by {invitation['created_by']}" if invitation else None
    show_fields(client.get("site-health", name)["site"], SITE, ("invitation", invited))
    print()
    print_rows(TOKENS, found["tokens"], "The site has no token yet.")


@app.command("rotate-token")
def rotate_token(
    name: SiteArgument,
    overlap_hours: Annotated[
        float, typer.Option("--overlap-hours", help="Hours for which the present tokens stay valid.")
    ] = 24.0,
    now: Annotated[bool, typer.Option("--now", help="Invalidate the present tokens immediately.")] = False,
    central: CentralOption = None,
    print_token: PrintTokenOption = False,
) -> None:
    """Issue a new token for a site and print the command to run there. Also reactivates a revoked site.

    The present tokens stay valid for a day, so that the site keeps sending until you have run the command.
    """
    address = _checked(central or url())
    body = {"overlap_s": 0 if now else overlap_hours * 3600, "with_code": not print_token}
    client = central_client()
    tokens = client.get("sites", name)["tokens"]
    rotated = client.post("sites", name, "rotate-token", body=body)
    ends = "no longer valid" if now else f"valid for {overlap_hours:g} more hour{'' if overlap_hours == 1 else 's'}"
    text = f"The present tokens of site {name} are {ends}."
    if not any(token["is_valid"] for token in tokens):
        text = f"Site {name} {'has no valid token' if tokens else 'has never joined, so it has no token'} to replace."
    _print_invitation(rotated, address, "SITE-FOLDER" if tokens else f"./{name}", text)


@app.command()
def revoke(name: SiteArgument, yes: YesOption = False) -> None:
    """Revoke a site: central accepts nothing from it. Its notifications stay. `rotate-token` reactivates it."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Revoke site {name}?", abort=True, err=True)
    revoked = central_client().post("sites", name, "revoke", body={})
    done(revoked, f"Revoked site {name}. Reactivate it: fieldpost sites rotate-token {shlex.quote(name)}")


app.command()(site_queries.health)
app.command()(site_queries.events)
app.command()(site_queries.rejected)
app.command()(site_queries.resubmit)
app.command("discard-rejected")(site_queries.discard_rejected)


def _checked(address: str) -> str:
    """Check the address before the request: the invitation is shown only once."""
    from fieldpost.link.endpoint import check_central_url

    return check_central_url(address)


def _print_invitation(answer: dict[str, Any], address: str, folder: str, text: str) -> None:
    """Print the command to run at the site."""
    if is_json():
        print_json(answer)
        return
    print(text)
    if "token" in answer:
        print(f"Its token is shown only once:\n\n    {answer['token']}\n")
        print("Run this at the site, and paste the token when asked:\n")
        name = shlex.quote(answer["name"])
        print(f"    fieldpost site init {shlex.quote(folder)} --name {name} --central {shlex.quote(address)}")
        return
    print(f"Run this at the site before {moment(answer['expires_at'])}; it works once:\n")
    print(f"    fieldpost site join {shlex.quote(answer['code'] + '@' + address)} --folder {shlex.quote(folder)}")
