"""`fieldpost tokens`: API tokens for programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import done, moment, or_never, print_json, show_table, table
from fieldpost.core.errors import InvalidInput

app = typer.Typer(help="API tokens, with which programs act for a user.", no_args_is_help=True)

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the token to a new file that only you can read.")
]

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
    role: Annotated[
        str,
        typer.Option(
            help="viewer, operator or admin, at most the role of the user; publisher, for applications; or subscriber, "
            "for the subscriptions of one owner."
        ),
    ],
    user: Annotated[str | None, typer.Option(help="User the token acts for.  [default: you]")] = None,
    subscription_owner: Annotated[
        str | None,
        typer.Option(help="For the role subscriber, unless the user is one: the owner whose subscriptions it reaches."),
    ] = None,
    expires_in: Annotated[str, typer.Option(help="Lifetime: 12h, 90d, 52w or never.")] = "90d",
    output: Output = None,
) -> None:
    """Create an API token and print it. It is not shown again."""
    body: dict[str, Any] = {"name": name, "role": role, "expires_in_s": _seconds(expires_in)}
    body |= {"user": user} if user is not None else {}
    body |= {"subscription_owner": subscription_owner} if subscription_owner is not None else {}
    _check_free(output)
    _show_once(central().post("tokens", body=body), output)


@app.command()
def rotate(
    name: Annotated[str, typer.Argument(help="Name of the token; it may have expired or been revoked.")],
    overlap: Annotated[
        str, typer.Option(help="How long the former token still works: 30m, 24h, 7d; 0 ends it now.")
    ] = "24h",
    expires_in: Annotated[
        str | None, typer.Option(help="Lifetime: 12h, 90d, 52w or never.  [default: that of the former token]")
    ] = None,
    output: Output = None,
) -> None:
    """Issue another token of the same name and print it. The former one ends after the overlap.

    Notifications and events of the program stay its own, because their source is the name of the token.
    """
    body: dict[str, Any] = {"overlap_s": 0.0 if overlap == "0" else _seconds(overlap, "--overlap")}
    if expires_in is not None:
        body["expires_in_s"] = _seconds(expires_in)
    _check_free(output)
    _show_once(central().post("tokens", name, "rotate", body=body), output)


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


def _check_free(output: Path | None) -> None:
    if output is not None and output.exists():
        raise InvalidInput("cli.file", f"{output} already exists")


def _show_once(added: dict[str, Any], output: Path | None) -> None:
    if output is not None:
        _write(output, added["token"])
        added = {**added, "token": "***"}
    if is_json():
        print_json(added)
        return
    expires = moment(added["expires_at"]) or "never"
    who = f"{added['name']} ({added['token_id']}) for {added['user']}"
    print(f"Created token {who}, role {added['role']}, expires: {expires}")
    print(f"Written to {output}." if output is not None else f"It is shown only once:\n\n    {added['token']}")


def _seconds(text: str, option: str = "--expires-in") -> float | None:
    if text == "never" and option == "--expires-in":
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdecimal() and 0 < len(number) < 7):
        raise InvalidInput("cli.duration", f"{option} is a number with m, h, d or w, got {text[:32]!r}", field=option)
    return float(int(number) * _UNITS[unit])


def _write(path: Path, token: str) -> None:
    import os

    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise InvalidInput("cli.file", f"cannot write {path}: {error.strerror}") from None
