"""`fieldpost secrets`: the keys that channels' secrets are kept under."""

from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.output import JsonOption, print_fields, print_json, say, show_fields

app = typer.Typer(help="Secrets: the keys that they are encrypted under.", no_args_is_help=True)


@app.command()
def show(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show the ids of central's keys, how many secrets stand under which, and what cannot be read."""
    found = Client(url, token_file).get("secrets")
    show_fields(
        found,
        as_json,
        [
            *(("key" if number else "key that seals", key) for number, key in enumerate(found["keys"])),
            *((f"under {key}", f"{count} secrets") for key, count in found["counts"].items()),
            *(("trouble", trouble) for trouble in found["troubles"]),
        ],
    )


@app.command()
def rotate(
    url: UrlOption = URL_DEFAULT, token_file: TokenFileOption = TOKEN_FILE_DEFAULT, as_json: JsonOption = False
) -> None:
    """Encrypt all secrets anew under central's first key. Ended half-way, the same again does the rest."""
    found = Client(url, token_file).post("secrets", "rotate", body={})
    if as_json:
        print_json(found)
    else:
        print(f"{found['count']} secrets were encrypted anew, under the key {found['key']}.")
        print_fields([("trouble", trouble) for trouble in found["troubles"]])
    if found["troubles"]:
        raise typer.Exit(1)


@app.command("new-key")
def new_key(
    file: Annotated[
        Path | None, typer.Argument(help="The key file to put it first in, made if need be; else it is printed.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new key, on this machine. Central takes it at its next start; see the guide on rotating the key."""
    import secrets

    from fieldpost.central.secrets.key_files import make_key_file
    from fieldpost.central.secrets.keyring import KEY_BYTES, key_text

    if file is None:
        key = key_text(secrets.token_bytes(KEY_BYTES))
        say({"key": key}, as_json, key)
    else:
        make_key_file(file)
        say({"file": str(file)}, as_json, f"The new key is the first one of {file}.")
