"""Rules for every command of the command line."""

import re
import shlex
from collections.abc import Iterator
from html import unescape
from importlib.resources import files
from typing import Any

import typer

from fieldpost.cli.main import app

PROCESSES = {"central", "site", "demo"}
"""Commands that run a process and log."""
FILES = {"lists export", "audit export"}
"""Commands that write a file in the requested format."""


def commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Each executable command by its full name."""
    below = getattr(command, "commands", {})
    for name, one in below.items():
        yield from commands(one, *path, name)
    if path and (not below or command.invoke_without_command):
        yield " ".join(path), command


def test_every_command_with_output_takes_json() -> None:
    found = dict(commands(typer.main.get_command(app)))
    without = {name for name, command in found.items() if not any("--json" in one.opts for one in command.params)}
    assert without == PROCESSES | FILES


def test_every_command_shown_in_the_console_exists_with_its_options() -> None:
    root = typer.main.get_command(app)
    shown = [line for page in _templates() for line in re.findall(r"<code>fieldpost ([^<]+)</code>", page)]
    assert len(shown) > 20, "the regular expression no longer finds them"
    wrong = []
    for line in shown:
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
