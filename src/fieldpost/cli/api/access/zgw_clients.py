"""`fieldpost zgw-clients`: applications that may use the ZGW API."""

from typing import Annotated, Any

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import done, or_never, print_json, show_table, table

app = typer.Typer(help="Clients of the ZGW Notificaties API.", no_args_is_help=True)

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="The client_id in its tokens.")]
AskSecretOption = Annotated[
    bool,
    typer.Option(
        "--secret",
        help="Read the secret that the application has from the terminal or a pipe, instead of generating one.",
    ),
]

CLIENTS = table(
    "clients",
    "client=client_id",
    ("state", lambda one: "revoked" if one["revoked_at"] else "active"),
    ("scopes", lambda one: ", ".join(one["scopes"])),
    ("kanalen", lambda one: ", ".join(one["kanalen"]) or "all"),
    ("last used", or_never("last_used_at")),
    "created=created_at",
    empty="No ZGW clients yet. Add one: fieldpost zgw-clients add CLIENT --scope publiceren",
)


@app.command()
def add(
    client: ClientArgument,
    scope: Annotated[list[str], typer.Option(help="publiceren or consumeren. Repeatable.")],
    kanaal: Annotated[
        list[str] | None, typer.Option(help="Kanaal that it may publish on. Repeatable.  [default: all]")
    ] = None,
    secret: AskSecretOption = False,
) -> None:
    """Add a client, or a revoked one again, and print its secret. It is not shown again."""
    body = {"client_id": client, "scopes": scope, "kanalen": kanaal or [], "secret": _ask(secret)}
    _show_once(central().post("zgw-clients", body=body), "Added")


@app.command("list")
def list_() -> None:
    """List all clients, revoked ones included."""
    show_table(central().get("zgw-clients"), CLIENTS)


@app.command()
def rotate(client: ClientArgument, secret: AskSecretOption = False) -> None:
    """Replace a client's secret and print it. The former one is valid for 24 hours more."""
    _show_once(central().post("zgw-clients", client, "rotate", body={"secret": _ask(secret)}), "Rotated")


@app.command()
def revoke(client: ClientArgument) -> None:
    """Reject a client's tokens immediately. Its abonnementen stay, and get notifications."""
    done(central().post("zgw-clients", client, "revoke", body={}), f"Revoked ZGW client {client}.")


def _ask(is_given: bool) -> str | None:
    from fieldpost.cli.api.channels import read_secrets

    return read_secrets(["secret"], [])["secret"] if is_given else None


def _show_once(shown: dict[str, Any], verb: str) -> None:
    if is_json():
        print_json(shown)
        return
    print(f"{verb} ZGW client {shown['client_id']}, scopes {', '.join(shown['scopes'])}.")
    if shown["warning"]:
        print(f"Warning: {shown['warning']}.")
    if shown["secret"]:
        print(f"Its secret is shown only once:\n\n    {shown['secret']}")
