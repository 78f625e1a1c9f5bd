"""`fieldpost sites`: the sites that may send to central."""

import shlex
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from fieldpost.cli.api.sites import site_queries
from fieldpost.cli.arguments import SiteArgument, YesOption
from fieldpost.cli.filters import filtered
from fieldpost.cli.options import central as central_client
from fieldpost.cli.options import is_json, url
from fieldpost.cli.output import columns, done, moment, or_never, print_json, print_rows, show_fields, show_table, table
from fieldpost.core.search.filters import SITE_FILTERS

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
    "node created=created_at valid=is_valid",
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


@app.command("add-node")
def add_node(
    name: SiteArgument,
    valid_hours: ValidOption = 1.0,
    central: CentralOption = None,
    print_token: PrintTokenOption = False,
) -> None:
    """Add the second node of a site and print the command to run on its machine. The invitation in it works once."""
    address = _checked(central or url())
    body = {"with_code": not print_token, "valid_s": valid_hours * 3600}
    added = central_client().post("sites", name, "add-node", body=body)
    _print_invitation(added, address, f"./{name}", f"Added node {added['node']} to site {name}.")


@app.command("remove-node")
def remove_node(
    name: SiteArgument,
    node: Annotated[int, typer.Argument(help="Number of the node, 0 or 1.", metavar="NODE")],
    yes: YesOption = False,
) -> None:
    """Remove a lost node of a pair: its tokens stop working, the other node continues."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove node {node} of site {name}?", abort=True, err=True)
    removed = central_client().post("sites", name, "remove-node", body={"node": node})
    done(removed, f"Removed node {node} of site {name}. Add another: fieldpost sites add-node {shlex.quote(name)}")


@app.command("list")
@filtered(SITE_FILTERS)
def list_(filters: dict[str, Any]) -> None:
    """List sites with their state, backlog and last report."""
    shown = replace(SITES, empty="No matching sites.") if filters else SITES
    show_table(central_client().get("site-health", **filters), shown)


@app.command()
def show(name: SiteArgument) -> None:
    """Show a site, its nodes, its token prefixes and its open invitations."""
    client = central_client()
    found = client.get("sites", name)
    if is_json():
        print_json(found)
        return
    invited = [
        f"node {one['node']}, until {moment(one['expires_at'])}, by {one['created_by']}" for one in found["enrolments"]
    ]
    nodes = ", ".join(map(str, found["nodes"])) if len(found["nodes"]) > 1 else None
    show_fields(
        client.get("site-health", name)["site"], SITE, ("nodes", nodes), ("invitation", "; ".join(invited) or None)
    )
    print()
    print_rows(TOKENS, found["tokens"], "The site has no token yet.")


@app.command("rotate-token")
def rotate_token(
    name: SiteArgument,
    overlap_hours: Annotated[
        float, typer.Option("--overlap-hours", help="Hours for which the present tokens stay valid.")
    ] = 24.0,
    now: Annotated[bool, typer.Option("--now", help="Invalidate the present tokens immediately.")] = False,
    node: Annotated[int | None, typer.Option("--node", help="Node of a pair whose token to replace, 0 or 1.")] = None,
    central: CentralOption = None,
    print_token: PrintTokenOption = False,
) -> None:
    """Issue a new token for a site and print the command to run there. Also reactivates a revoked site.

    The present tokens stay valid for a day, so that the site keeps sending until you have run the command.
    """
    address = _checked(central or url())
    body = {"overlap_s": 0 if now else overlap_hours * 3600, "with_code": not print_token, "node": node}
    client = central_client()
    tokens = [one for one in client.get("sites", name)["tokens"] if node in (None, one["node"])]
    rotated = client.post("sites", name, "rotate-token", body=body)
    ends = "no longer valid" if now else f"valid for {overlap_hours:g} more hour{'' if overlap_hours == 1 else 's'}"
    whose = f"site {name}" if node is None else f"node {node} of site {name}"
    text = f"The present tokens of {whose} are {ends}."
    if not any(token["is_valid"] for token in tokens):
        why = "has no valid token" if tokens else "has never joined, so it has no token"
        text = f"{whose[0].upper()}{whose[1:]} {why} to replace."
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
