"""`fieldpost tokens`: API tokens for programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import done, moment, or_never, print_json, show_table, table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="API tokens, with which programs act for a user.", no_args_is_help=True)

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

TOKENS = table(
    "tokens",
    "id=token_id name user role",
    ("last used", or_never("last_used_at")),
    ("expires", or_never("expires_at")),
    "created=created_at",
    empty="No tokens yet. Add one: fieldpost tokens add NAME --role viewer",
)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Purpose of the token; shown in lists and in the audit log.")],
    role: Annotated[str, typer.Option(help="viewer, operator or admin; at most the role of the user.")],
    user: Annotated[str | None, typer.Option(help="User the token acts for.  [default: you]")] = None,
    expires_in: Annotated[str, typer.Option(help="Lifetime: 12h, 90d, 52w or never.")] = "90d",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the token to a new file that only you can read.")
    ] = None,
) -> None:
    """Create an API token and print it. It is not shown again."""
    body: dict[str, Any] = {"name": name, "role": role, "expires_in_s": _seconds(expires_in)}
    if user is not None:
        body["user"] = user
    if output is not None and output.exists():
        raise InvalidInput("cli.file", f"{output} already exists")
    added = central().post("tokens", body=body)
    if output is not None:
        _write(output, added["token"])
        added = {**added, "token": "***"}
    if is_json():
        print_json(added)
        return
    expires = moment(added["expires_at"]) or "never"
    print(f"Created token {name} ({added['token_id']}) for {added['user']}, role {added['role']}, expires: {expires}")
    print(f"Written to {output}." if output is not None else f"It is shown only once:\n\n    {added['token']}")


@app.command("list")
def list_() -> None:
    """List valid tokens: all for administrators, your own otherwise."""
    show_table(central().get("tokens"), TOKENS)


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Token id, from `fieldpost tokens list`.")],
) -> None:
    """Revoke a token. It stops working immediately."""
    central().delete("tokens", token_id)
    done({"token_id": token_id, "is_revoked": True}, f"Revoked token {token_id}.")


def _seconds(text: str) -> float | None:
    if text == "never":
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdecimal() and 0 < len(number) < 7):
        message = f"a lifetime is a number with m, h, d or w, or never, got {text[:32]!r}"
        raise InvalidInput("cli.duration", message, field="--expires-in")
    return float(int(number) * _UNITS[unit])


def _write(path: Path, token: str) -> None:
    import os

    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot write {path}: {error.strerror}") from None
