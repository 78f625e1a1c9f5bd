"""The command line as a whole: what holds for every command."""

from collections.abc import Iterator
from typing import Any

import typer

from fieldpost.cli.main import app

PROCESSES = {"central", "site", "demo"}
"""They run until they are stopped, and log."""
FILES = {"lists export", "audit export"}
"""What they write is a file, in a format that is asked for."""


def commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Each command that does something, by the words that call it."""
    below = getattr(command, "commands", {})
    for name, one in below.items():
        yield from commands(one, *path, name)
    if path and (not below or command.invoke_without_command):
        yield " ".join(path), command


def test_every_command_that_tells_something_takes_json() -> None:
    found = dict(commands(typer.main.get_command(app)))
    without = {name for name, command in found.items() if not any("--json" in one.opts for one in command.params)}
    assert without == PROCESSES | FILES
