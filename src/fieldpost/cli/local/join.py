"""`fieldpost site join`: one pasted line makes this machine's folder a site of central."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fieldpost.cli.output import JsonOption, print_json


def join(
    invitation: Annotated[
        str, typer.Argument(help="What `fieldpost sites add` printed; - reads it from standard input.")
    ],
    folder: Annotated[
        Path,
        typer.Option("--folder", "-f", envvar="FIELDPOST_FOLDER", help="The site's folder; it is made if need be."),
    ] = Path(),
    ca_file: Annotated[
        Path | None, typer.Option(help="The authority of central's certificate, if it is your own.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Join central by an invitation, which is good for one site, once, and for a short time.

    A new folder becomes the site's. A folder that is the site's already gets its new token; a running agent takes it by
    itself. If it breaks off, run it again.
    """
    import os
    import shlex

    from fieldpost.link.credentials import ENTROPY_BYTES
    from fieldpost.link.join import parse_invitation
    from fieldpost.site.config.folder import SETTINGS_FILE
    from fieldpost.site.join import join_central

    text = sys.stdin.readline() if invitation == "-" else invitation
    _, url = parse_invitation(text)
    if url.startswith("http://") and not _is_here(url):
        print(
            "fieldpost: this goes over plain HTTP, where others may read along; use https:// if you can",
            file=sys.stderr,
        )
    is_new = not (folder / SETTINGS_FILE).exists()
    made = join_central(folder, text, os.urandom(ENTROPY_BYTES), ca_file)
    if as_json:
        print_json({"site": made.name, "folder": str(folder), "is_new": is_new})
        return
    if not is_new:
        print(f"The site {made.name} in {folder} has a new token.")
        return
    print(f"This is the site {made.name} now, in {folder}.")
    print(f"Run its agent:    fieldpost site --folder {shlex.quote(str(folder))}")
    print(f'Send from there:  fieldpost send --folder {shlex.quote(str(folder))} --to LIST --subject "…" "…"')


def _is_here(url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
