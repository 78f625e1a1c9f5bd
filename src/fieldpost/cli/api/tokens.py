"""`fieldpost tokens`: API tokens for programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, moment, print_json, say, show_table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="API tokens: programs act by them in a user's name.", no_args_is_help=True)

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What it is for; shown in lists and in the audit log.")],
    role: Annotated[str, typer.Option(help="viewer, operator or admin; at most its user's role.")],
    user: Annotated[
        str | None, typer.Option(help="In whose name it acts.  [default: the one who calls]", show_default=False)
    ] = None,
    expires_in: Annotated[str, typer.Option(help="How long it lives: 12h, 90d, 52w, or never.")] = "90d",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to a new file that only you may read.")
    ] = None,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make an API token and print it, which is possible only now."""
    body: dict[str, Any] = {"name": name, "role": role, "expires_in_s": _seconds(expires_in)}
    if user is not None:
        body["user"] = user
    if output is not None and output.exists():
        raise InvalidInput("cli.file", f"{output} is there already")
    added = Client(url, token_file).post("tokens", body=body)
    if output is not None:
        _write(output, added["token"])
        added = {**added, "token": "***"}
    if as_json:
        print_json(added)
        return
    until = moment(added["expires_at"]) or "it is revoked"
    print(f"The token {name} acts for {added['user']} as {added['role']} until {until}. Its id is {added['token_id']}.")
    print(f"It is in {output}." if output is not None else f"Shown only now:\n\n    {added['token']}")


@app.command("list")
def list_(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show the tokens that can be used: all of them to an administrator, one's own to everybody else."""
    found = Client(url, token_file).get("tokens")
    show_table(
        found,
        as_json,
        ("id", "name", "user", "role", "last used", "expires", "made"),
        [
            (
                one["token_id"],
                one["name"],
                one["user"],
                one["role"],
                moment(one["last_used_at"]) or "never",
                moment(one["expires_at"]) or "never",
                moment(one["created_at"]),
            )
            for one in found["tokens"]
        ],
        "There is no token.",
    )


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="The token's id, as `fieldpost tokens list` shows it.")],
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Revoke a token: it is worth nothing from now on."""
    Client(url, token_file).delete("tokens", token_id)
    say({"token_id": token_id, "is_revoked": True}, as_json, f"The token {token_id} is revoked.")


def _seconds(text: str) -> float | None:
    if text == "never":
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdecimal() and 0 < len(number) < 7):
        raise InvalidInput("cli.duration", "a span is a number and m, h, d or w, or never", field="--expires-in")
    return float(int(number) * _UNITS[unit])


def _write(path: Path, token: str) -> None:
    import os

    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise InvalidInput("cli.file", f"{path} cannot be written: {error.strerror}") from None
