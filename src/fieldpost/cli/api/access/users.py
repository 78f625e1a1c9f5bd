"""`fieldpost users`: users of the console and the API."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fieldpost.cli.options import central, is_json, url
from fieldpost.cli.output import Table, columns, done, moment, or_never, print_json, show_fields, show_table

if TYPE_CHECKING:
    from fieldpost.link.http.client import JsonObject

app = typer.Typer(help="Users and their roles.", no_args_is_help=True)

UserArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the user: lower-case letters, digits, . _ @ + -")
]
RoleOption = Annotated[
    str,
    typer.Option(
        help="viewer (read only), operator (retry, discard, reset), admin (everything) or subscriber (only the "
        "subscriptions of one owner)."
    ),
]
SubscriptionOwnerOption = Annotated[
    str | None,
    typer.Option(help="For the role subscriber: the owner whose subscriptions the user sees and changes."),
]


def _role(user: Any) -> str:
    owner = user["subscription_owner"]
    return f"{user['role']} of {owner}" if owner else str(user["role"])


def _state(user: Any) -> str:
    if user["is_disabled"]:
        return "disabled"
    if user["is_external"]:
        return "signs in with the identity provider"
    return "active" if user["has_password"] else "no password yet"


USERS = Table(
    "users",
    {"name": "name", "role": _role, "state": _state, "last login": or_never("last_login_at"), "added": "created_at"},
    empty="No users yet. Add one: fieldpost users add NAME --role operator",
)
FIELDS = columns(
    "name",
    ("role", _role),
    ("state", _state),
    ("added", lambda user: f"{moment(user['created_at'])} by {user['created_by'] or 'the first start'}"),
    ("last login", or_never("last_login_at")),
)


@app.command()
def add(name: UserArgument, role: RoleOption, subscription_owner: SubscriptionOwnerOption = None) -> None:
    """Add a user and print a one-time link for choosing the password."""
    body = {"name": name, "role": role, "subscription_owner": subscription_owner}
    added = central().post("users", body=body)
    _show_link(added, f"Added user {name} with role {role}.")


@app.command("list")
def list_() -> None:
    """List all users."""
    show_table(central().get("users"), USERS)


@app.command()
def show(name: UserArgument) -> None:
    """Show a user and their sessions."""
    client = central()
    found = {**client.get("users", name), "sessions": client.get("sessions", user=name)["sessions"]}
    sessions = [f"since {moment(one['created_at'])} from {one['address'] or 'unknown'}" for one in found["sessions"]]
    show_fields(found, FIELDS, *(("session", text) for text in sessions))


@app.command()
def change(name: UserArgument, role: RoleOption, subscription_owner: SubscriptionOwnerOption = None) -> None:
    """Change a user's role. Their sessions end and they have to log in again."""
    owner = {} if subscription_owner is None else {"subscription_owner": subscription_owner}
    changed = _change(name, role=role, **owner)
    done(changed, f"Changed user {name} to role {_role(changed)}.")


@app.command()
def disable(name: UserArgument) -> None:
    """Disable a user immediately. Their sessions and tokens stop working."""
    done(_change(name, is_disabled=True), f"Disabled user {name}.")


@app.command()
def enable(name: UserArgument) -> None:
    """Enable a disabled user."""
    done(_change(name, is_disabled=False), f"Enabled user {name}.")


@app.command("reset-password")
def reset_password(name: UserArgument) -> None:
    """Print a one-time link for choosing a new password. The current password works until then."""
    made = central().post("users", name, "reset-password", body={})
    _show_link(made, f"Created a link for {name}; earlier links no longer work.")


@app.command("log-out")
def log_out(name: UserArgument) -> None:
    """End all sessions of a user."""
    ended = central().post("users", name, "log-out", body={})
    done(ended, f"Ended {ended['sessions']} sessions of {name}.")


@app.command()
def remove(name: UserArgument) -> None:
    """Remove a user with all their sessions and tokens. Their actions stay in the audit log."""
    central().delete("users", name)
    done({"name": name, "is_removed": True}, f"Removed user {name}.")


def _change(name: str, **values: object) -> "JsonObject":
    client = central()
    version = client.get("users", name)["version"]
    return client.patch("users", name, body={"version": version, **values})


def _show_link(made: "JsonObject", text: str) -> None:
    if is_json():
        print_json(made)
        return
    print(f"{text} Open this link before {moment(made['expires_at'])} to choose the password; it works once:\n")
    print(f"    {url().rstrip('/')}{made['link']}")
