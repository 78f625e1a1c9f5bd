"""`fieldpost me` and `fieldpost sessions`: who one is, and where one is logged in at the console."""

from typing import Annotated

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_fields, print_json, say, show_table

sessions = typer.Typer(help="Sessions: where one is logged in at the console.", no_args_is_help=True)


def me(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show in whose name commands speak to central, and as what."""
    found = Client(url, token_file).get("me")
    if as_json:
        print_json(found)
        return
    print_fields([("name", found["name"]), ("role", found["role"]), ("token", found["token"]), ("central", url)])


@sessions.command("list")
def list_(
    user: Annotated[str | None, typer.Option(help="Another's, for an administrator.", show_default=False)] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show where one is logged in."""
    found = Client(url, token_file).get("sessions", user=user)
    show_table(
        found,
        as_json,
        ("id", "user", "since", "last used", "from"),
        [
            (one["session_id"], one["user"], moment(one["created_at"]), moment(one["last_used_at"]), one["address"])
            for one in found["sessions"]
        ],
        "There is no session.",
    )


@sessions.command()
def end(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="The session's id, from `sessions list`.")],
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """End one of one's own sessions."""
    Client(url, token_file).delete("sessions", session_id)
    say({"session_id": session_id, "is_ended": True}, as_json, f"The session {session_id} is ended.")
