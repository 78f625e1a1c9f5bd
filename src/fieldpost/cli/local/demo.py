"""`fieldpost demo`: all of Fieldpost on this machine, in one terminal."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Where its data is kept.  [default: fieldpost-demo; with --check a temporary one]"),
    ] = None,
    store: Annotated[
        str,
        typer.Option(
            help="Central's store, e.g. postgresql://…; else a SQLite file in the folder.", show_default=False
        ),
    ] = "",
    port: Annotated[
        int | None, typer.Option(help="The console's port.  [default: 8025, or a free one]", min=0, max=65535)
    ] = None,
    inbox_port: Annotated[
        int | None, typer.Option(help="The inbox's port.  [default: 8026, or a free one]", min=0, max=65535)
    ] = None,
    smtp_port: Annotated[
        int | None, typer.Option(help="The mail catcher's port.  [default: 2525, or a free one]", min=0, max=65535)
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Run unattended, see that it works, and end within 45 s: 0 if it does, else 1."),
    ] = False,
) -> None:
    """Run central, two sites that send and a mail catcher on this machine, to look at. Ctrl-C stops it all.

    A second start goes on from the same data.
    """
    from fieldpost.core.errors import ConfigError

    if sys.platform == "win32":
        raise ConfigError("demo.platform", "the demo needs Linux or macOS", hint="on Windows it runs within WSL")
    from fieldpost.demo.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(folder, store, port, inbox_port, smtp_port, check)))
