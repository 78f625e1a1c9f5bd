"""`fieldpost doctor`: is all well with central on this machine?"""

from typing import Annotated

import typer

from fieldpost.cli.central import ConfigOption, FolderOption, StoreOption, settings_with
from fieldpost.cli.client import JsonOption
from fieldpost.cli.output import print_json, print_table

UNWELL = 9
"""The exit code when a check fails."""


def doctor(
    config: ConfigOption = None,
    store: StoreOption = None,
    folder: FolderOption = None,
    port: Annotated[int | None, typer.Option(help="The port that central listens on.  [default: 8025]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look whether all is well with central on this machine: disk, store, clock, schema, nodes, leader.

    It changes nothing. The exit code is 9 when a check fails, and 0 when there are warnings at most.
    """
    import asyncio

    from fieldpost.core.checks import Verdict
    from fieldpost.run import logs
    from fieldpost.run.doctor import examine

    settings = settings_with(config, store, folder, port=port)
    logs.configure("error")
    found = asyncio.run(examine(settings))
    if as_json:
        checks = [{"name": c.name, "status": c.verdict.value, "detail": c.detail} for c in found.checks]
        print_json({"status": found.verdict.value, "checks": checks})
    else:
        rows = [(check.name, check.verdict.value, check.detail) for check in found.checks]
        print_table(("check", "status", "what was found"), rows, "")
    if found.verdict is Verdict.FAILING:
        raise typer.Exit(UNWELL)
