"""`fieldpost site join`: enrol this machine as a site of central."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.options import is_json
from fieldpost.cli.output import print_json


def join(
    invitation: Annotated[
        str, typer.Argument(help="Invitation that `fieldpost sites add` printed; - reads it from stdin.")
    ],
    folder: Annotated[
        Path, typer.Option("--folder", "-f", envvar="FIELDPOST_FOLDER", help="Folder of the site; created if missing.")
    ] = Path(),
    ca_file: Annotated[
        Path | None, typer.Option(help="CA certificate, if central uses a certificate authority of your own.")
    ] = None,
    allow_plain: Annotated[
        bool, typer.Option("--allow-plain", help="Send the token over plain HTTP, in a network that you trust.")
    ] = False,
) -> None:
    """Join central with an invitation. It is valid for one site, once, and for a short time.

    A new folder is set up for the site. An existing site folder gets a new token, which a running agent picks up. If
    the command is interrupted, run it again.
    """
    import os
    import shlex

    from fieldpost.link.credentials import ENTROPY_BYTES
    from fieldpost.site.config.folder import SETTINGS_FILE
    from fieldpost.site.join import join_central

    text = sys.stdin.readline() if invitation == "-" else invitation
    is_new = not (folder / SETTINGS_FILE).exists()
    made = join_central(folder, text, os.urandom(ENTROPY_BYTES), ca_file, allow_plain=allow_plain)
    if is_json():
        print_json({"site": made.name, "folder": str(folder), "is_new": is_new})
        return
    if not is_new:
        print(f"Site {made.name} in {folder} has a new token.")
        return
    print(f"Set up site {made.name} in {folder}.")
    print(f"Run the agent:        fieldpost site --folder {shlex.quote(str(folder))}")
    print(f'Send a notification:  fieldpost send --folder {shlex.quote(str(folder))} --to LIST --subject "…" "…"')
