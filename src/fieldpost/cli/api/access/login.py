"""`fieldpost login`, `logout`, `profiles`, `me` and `sessions`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli import options
from fieldpost.cli import profiles as kept
from fieldpost.cli.output import Table, done, show_fields, show_table

sessions = typer.Typer(help="Console sessions.", no_args_is_help=True)

ProfileOption = Annotated[str, typer.Option("--profile", help="Name of the profile.")]

PROFILES = Table(
    "profiles", {"profile": "name", "central": "url"}, empty="No profiles yet. Create one: fieldpost login URL"
)
SESSIONS = Table(
    "sessions",
    {"id": "session_id", "user": "user", "since": "created_at", "last used": "last_used_at", "address": "address"},
    empty="No sessions.",
)


def login(
    url: Annotated[str, typer.Argument(help="Address of central, e.g. https://fieldpost.example.org")],
    profile: ProfileOption = kept.DEFAULT,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the API token. Without it, FIELDPOST_TOKEN or the terminal is read.")
    ] = None,
    allow_plain: Annotated[
        bool, typer.Option("--allow-plain", help="Send the token over plain HTTP, in a network that you trust.")
    ] = False,
) -> None:
    """Store central's address and an API token in a profile.

    Administrators create tokens with `fieldpost tokens add`; central's first start wrote one to
    fieldpost-data/api-token. Select another profile than `default` with `fieldpost --profile NAME …`.
    """
    kept.check_name(profile)
    token = os.environ.get("FIELDPOST_TOKEN") or (
        options.token_in(token_file) if token_file else str(typer.prompt("API token", hide_input=True)).strip()
    )
    me = options.client_for(url, token, allow_plain=allow_plain).get("me")
    kept.write(profile, kept.Profile(url, token, allow_plain))
    answer = {"profile": profile, "url": url, "name": me["name"], "role": me["role"]}
    done(answer, f"Logged in to {url} as {me['name']} ({me['role']}). Profile: {profile}")


def logout(
    profile: ProfileOption = kept.DEFAULT,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke the token as well.")] = False,
) -> None:
    """Delete a profile. Its token stays valid unless you add --revoke."""
    found = kept.read(profile)
    if revoke:
        client = options.client_for(found.url, found.token, allow_plain=found.allow_plain)
        client.delete("tokens", found.token.split("_")[2])
    kept.remove(profile)
    revoked = " and revoked its token" if revoke else ""
    done({"profile": profile, "is_revoked": revoke}, f"Deleted profile {profile}{revoked}.")


def profiles() -> None:
    """List the profiles, without their tokens."""
    show_table({"profiles": [{"name": name, "url": one.url} for name, one in kept.all_profiles()]}, PROFILES)


def me() -> None:
    """Show the user and role that commands run as."""
    central = options.central()
    fields = {"name": "name", "role": "role", "token": "token"}
    show_fields(central.get("me"), fields, ("central", central.url))


@sessions.command("list")
def list_(
    user: Annotated[str | None, typer.Option(help="Sessions of another user (administrators only).")] = None,
) -> None:
    """List your console sessions."""
    show_table(options.central().get("sessions", user=user), SESSIONS)


@sessions.command()
def end(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="Session id, from `fieldpost sessions list`.")],
) -> None:
    """End one of your sessions."""
    options.central().delete("sessions", session_id)
    done({"session_id": session_id, "is_ended": True}, f"Ended session {session_id}.")
