"""`fieldpost demo`: central, sites and a catcher of mails, chats and SMS in one terminal."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[
        Path | None,
        typer.Option(help="Data folder.  [default: fieldpost-demo; with --check a temporary folder]", readable=False),
    ] = None,
    store: Annotated[
        str, typer.Option(help="Database of central, e.g. postgresql://…  [default: a SQLite file in the folder]")
    ] = "",
    port: Annotated[
        int | None, typer.Option(help="Port of the console.  [default: 8025 or a free port]", min=0, max=65535)
    ] = None,
    inbox_port: Annotated[
        int | None, typer.Option(help="Port of the inbox.  [default: 8026 or a free port]", min=0, max=65535)
    ] = None,
    smtp_port: Annotated[
        int | None,
        typer.Option(help="SMTP port of the mail catcher.  [default: 2525 or a free port]", min=0, max=65535),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Run unattended, verify the deliveries and exit within 45 s: 0 on success, else 1."
        ),
    ] = False,
    pair: Annotated[
        bool, typer.Option("--pair", help="Run the harbour as a pair of two nodes, and show what to freeze.")
    ] = False,
) -> None:
    """Run central, two sending sites and a catcher of mails, chats and SMS on this machine. Ctrl-C stops everything.

    The next start continues with the same data.
    """
    from fieldpost.core.errors import ConfigError

    if sys.platform == "win32":
        raise ConfigError("demo.platform", "the demo needs Linux or macOS", hint="on Windows, run it in WSL")
    from fieldpost.demo.demo import DemoOptions, run_demo

    raise typer.Exit(run_demo(DemoOptions(folder, store, port, inbox_port, smtp_port, check, pair)))
