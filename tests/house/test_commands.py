"""The command line as a whole: what holds for every command."""

import re
import shlex
from collections.abc import Iterator
from html import unescape
from importlib.resources import files
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


def test_every_command_that_a_page_of_the_console_teaches_is_there_and_takes_what_it_shows() -> None:
    root = typer.main.get_command(app)
    taught = [line for page in _templates() for line in re.findall(r"<code>fieldpost ([^<]+)</code>", page)]
    assert len(taught) > 20, "they are found by how they are written"
    wrong = []
    for line in taught:
        command: Any = root
        for word in shlex.split(unescape(re.sub(r"{{.*?}}", "X", line))):
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
            elif command is root or (word.startswith("--") and not any(word in one.opts for one in command.params)):
                wrong.append(f"{line}: {word}")
    assert wrong == []


def _templates() -> Iterator[str]:
    for page in (files("fieldpost.front.console") / "templates").iterdir():
        yield page.read_text(encoding="utf-8")
