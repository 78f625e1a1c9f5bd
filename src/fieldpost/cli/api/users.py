"""`fieldpost users`: who may come in, and as what."""

from typing import Annotated

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, JsonAnswer, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, say, show_table

app = typer.Typer(help="Users: the people who may come in, each with a role.", no_args_is_help=True)

UserNameArgument = Annotated[str, typer.Argument(help="The user's name: small letters, digits, . _ @ + -")]
RoleOption = Annotated[
    str, typer.Option(help="viewer (sees), operator (retries, discards, resets) or admin (sets everything up).")
]


@app.command()
def add(
    name: UserNameArgument,
    role: RoleOption,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a user and print the link by which he chooses his password, once."""
    added = Client(url, token_file).post("users", body={"name": name, "role": role})
    _tell_link(added, url, as_json, f"The user {name} is added, as {role}.")


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show all users."""
    found = Client(url, token_file).get("users")
    show_table(
        found,
        as_json,
        ("name", "role", "state", "last login", "added"),
        [
            (one["name"], one["role"], _state(one), moment(one["last_login_at"]) or "never", moment(one["created_at"]))
            for one in found["users"]
        ],
        "There is no user yet. Add one: fieldpost users add NAME --role operator",
    )


@app.command()
def show(
    name: UserNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show one user, and where he is logged in."""
    client = Client(url, token_file)
    found, sessions = client.get("users", name), client.get("sessions", user=name)["sessions"]
    if as_json:
        print_json({**found, "sessions": sessions})
        return
    print_fields(
        [
            ("name", found["name"]),
            ("role", found["role"]),
            ("state", _state(found)),
            ("added", f"{moment(found['created_at'])} by {found['created_by'] or 'the first start'}"),
            ("last login", moment(found["last_login_at"]) or "never"),
            *(("session", f"since {moment(s['created_at'])} from {s['address'] or 'unknown'}") for s in sessions),
        ]
    )


@app.command()
def change(
    name: UserNameArgument,
    role: RoleOption,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Give a user another role. It ends his sessions; he logs in again."""
    changed = _change(Client(url, token_file), name, {"role": role})
    say(changed, as_json, f"The user {name} is {changed['role']} now.")


@app.command()
def disable(
    name: UserNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Shut a user out at once: no login, no session, no token of his works until he is enabled again."""
    changed = _change(Client(url, token_file), name, {"is_disabled": True})
    say(changed, as_json, f"The user {name} is disabled.")


@app.command()
def enable(
    name: UserNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let a user in again who was disabled."""
    changed = _change(Client(url, token_file), name, {"is_disabled": False})
    say(changed, as_json, f"The user {name} may come in again.")


@app.command("reset-password")
def reset_password(
    name: UserNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print a link by which the user chooses another password, once. His present one is good until then."""
    made = Client(url, token_file).post("users", name, "reset-password", body={})
    _tell_link(made, url, as_json, f"A link for {name}, in the place of any before.")


@app.command("log-out")
def log_out(
    name: UserNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """End all sessions of a user."""
    ended = Client(url, token_file).post("users", name, "log-out", body={})
    say(ended, as_json, f"{ended['sessions']} sessions of {name} are ended.")


@app.command()
def remove(
    name: UserNameArgument,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Remove a user with all his sessions and tokens. What he did stays in the audit log."""
    Client(url, token_file).delete("users", name)
    say({"name": name, "is_removed": True}, as_json, f"The user {name} is removed.")


def _change(client: Client, name: str, values: dict[str, object]) -> JsonAnswer:
    seen = client.get("users", name)
    return client.patch("users", name, body={"version": seen["version"], **values})


def _tell_link(made: JsonAnswer, url: str, as_json: bool, done: str) -> None:
    if as_json:
        print_json(made)
        return
    print(f"{done} To choose the password, open this once, before {moment(made['expires_at'])}:\n")
    print(f"    {url.rstrip('/')}{made['link']}")


def _state(one: JsonAnswer) -> str:
    if one["is_disabled"]:
        return "disabled"
    if one["is_external"]:
        return "known by the identity provider"
    return "active" if one["has_password"] else "no password yet"
