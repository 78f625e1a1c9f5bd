"""`fieldpost secrets`: the keys that encrypt the secrets of channels."""

from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.options import central, is_json
from fieldpost.cli.output import done, print_fields, print_json, show_fields

app = typer.Typer(help="Encryption keys of channel secrets.", no_args_is_help=True)


@app.command()
def show() -> None:
    """Show central's key ids, the number of secrets per key, and secrets that cannot be decrypted."""
    found = central().get("secrets")
    show_fields(
        found,
        {},
        *(("key" if number else "encrypting key", key) for number, key in enumerate(found["keys"])),
        *((f"encrypted with {key}", f"{count} secrets") for key, count in found["counts"].items()),
        *(("problem", problem) for problem in found["problems"]),
    )


@app.command()
def rotate() -> None:
    """Encrypt all secrets with central's first key. If interrupted, run it again to do the rest."""
    found = central().post("secrets", "rotate", body={})
    if is_json():
        print_json(found)
    else:
        print(f"Encrypted {found['count']} secrets with key {found['key']}.")
        print_fields([("problem", problem) for problem in found["problems"]])
    if found["problems"]:
        raise typer.Exit(1)


@app.command("new-key")
def new_key(
    file: Annotated[
        Path | None,
        typer.Argument(help="Key file to insert the key into, as its first line. Created if missing. Default: stdout."),
    ] = None,
) -> None:
    """Create an encryption key on this machine. Central uses it from its next start."""
    import secrets

    from fieldpost.central.secrets.key_files import make_key_file
    from fieldpost.central.secrets.keyring import KEY_BYTES, key_text

    if file is None:
        key = key_text(secrets.token_bytes(KEY_BYTES))
        done({"key": key}, key)
    else:
        make_key_file(file)
        done({"file": str(file)}, f"Added a new key as the first line of {file}.")
