"""`fieldpost doctor`: is all well with central on this machine, or with the whole installation?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldpost.cli import installation
from fieldpost.cli.client import TOKEN_FILE_DEFAULT, URL_DEFAULT, Client, TokenFileOption, UrlOption
from fieldpost.cli.local.central import ConfigOption, DataFolderOption, StoreOption, settings_with
from fieldpost.cli.output import JsonOption, print_json, print_table

if TYPE_CHECKING:
    from fieldpost.core.checks import Diagnosis

UNWELL = 9
"""The exit code when a check fails."""


def doctor(
    config: ConfigOption = None,
    store: StoreOption = None,
    folder: DataFolderOption = None,
    port: Annotated[int | None, typer.Option(help="The port that central listens on.  [default: 8025]")] = None,
    is_remote: Annotated[
        bool,
        typer.Option(
            "--remote", help="Ask the running central over its API instead, and so look at the whole installation."
        ),
    ] = False,
    url: UrlOption = URL_DEFAULT,
    token_file: TokenFileOption = TOKEN_FILE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Look whether all is well with central on this machine: settings, disk, store, clock, schema, nodes, leader.

    With --remote it needs none of central's files: it asks for central's troubles, its nodes, the breakers, what is
    parked, and how each site is.

    It changes nothing. The exit code is 9 when a check fails, and 0 when there are warnings at most.
    """
    from fieldpost.core.checks import CheckVerdict, Diagnosis

    found = (
        Diagnosis(tuple(installation.examine(Client(url, token_file))))
        if is_remote
        else _this_machine(config, store, folder, port)
    )
    if as_json:
        checks = [{"name": c.name, "status": c.verdict.value, "detail": c.detail} for c in found.checks]
        print_json({"status": found.verdict.value, "checks": checks})
    else:
        rows = [(check.name, check.verdict.value, check.detail) for check in found.checks]
        print_table(("check", "status", "what was found"), rows, "")
    if found.verdict is CheckVerdict.FAILING:
        raise typer.Exit(UNWELL)


def _this_machine(config: Path | None, store: str | None, folder: str | None, port: int | None) -> "Diagnosis":
    import asyncio

    from fieldpost.run import logs
    from fieldpost.run.doctor import examine

    settings = settings_with(config, store, folder, port=port)
    logs.configure("error")
    return asyncio.run(examine(settings, file=config))
