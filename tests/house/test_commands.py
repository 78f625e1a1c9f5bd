"""Rules for every command of the command line."""

import re
import shlex
from collections.abc import Iterator
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer

from fieldpost.cli.commands import app

PROCESSES = {"central", "site", "demo", "relay"}
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
    shown = [line for page in _templates() for line in re.findall(r"<code>fieldpost ([^<]+)</code>", page)]
    assert len(shown) > 20, "the regular expression no longer finds them"
    assert [error for line in shown for error in _errors(unescape(re.sub(r"{{.*?}}", "X", line)))] == []


def test_every_command_shown_in_the_docs_exists_with_its_options(project: Path) -> None:
    pages = [*project.glob("*.md"), *(project / "docs").rglob("*.md")]
    texts = [page.read_text() for page in pages if page.parent.name not in ("adr", "contributing", "reference")]
    shown = [line for text in texts for line in re.findall(r"^ {4,}(?:\$ )?fieldpost ([^\n]+)$", text, re.MULTILINE)]
    shown += [line.replace("\n", " ") for text in texts for line in re.findall(r"`fieldpost ([^`]+)`", text)]
    assert len(shown) > 100, "the regular expression no longer finds them"
    assert [error for line in shown for error in _errors(re.split(r" [#&]", line)[0].rstrip("\\"))] == []


def _errors(line: str) -> Iterator[str]:
    """The words of a command line that should be a command or an option and are not."""
    command: Any = typer.main.get_command(app)
    options = {option: one for one in command.params for option in one.opts}
    is_value = False
    for word in shlex.split(line.replace("…", "X")):
        if is_value:
            is_value = False
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
            options |= {option: one for one in command.params for option in (*one.opts, *one.secondary_opts)}
        elif word in options:
            is_value = not options[word].is_flag
        elif word.startswith("-"):
            if word not in ("-", "--help"):
                yield f"{line}: {word}"
        elif getattr(command, "commands", {}) and not word.isupper():
            yield f"{line}: {word}"


def _templates() -> Iterator[str]:
    for page in (files("fieldpost.front.console") / "templates").iterdir():
        yield page.read_text(encoding="utf-8")
