"""Text and tables for people, JSON for programs: every command that tells something takes --json."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text for people.")]


def print_json(value: object, stream: IO[str] | None = None) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False), file=stream)


def say(answer: object, as_json: bool, text: str) -> None:
    """What an act came to: the answer for programs, or what was acted on where there is none; text for people."""
    if as_json:
        print_json(answer)
    else:
        print(text)


def show_table(
    answer: object,
    as_json: bool,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    empty: str,
    *,
    more: str | None = None,
) -> None:
    """What was found: the answer for programs, a table for people; `more` is the cursor by which a list goes on."""
    if as_json:
        print_json(answer)
        return
    print_table(columns, rows, empty)
    if more:
        print(f"\nThere are more: --cursor {more}")


def show_fields(answer: object, as_json: bool, fields: Iterable[tuple[str, object]]) -> None:
    """One thing that was found: the answer for programs, its fields below each other for people."""
    if as_json:
        print_json(answer)
    else:
        print_fields(fields)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table without colours where nobody looks; `empty` says what to do where there is nothing to show."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = [[Text(_cell(value)) for value in row] for row in rows]
    if not found:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in found:
        table.add_row(*row)
    # A pipe has no width: the longest line then decides, so that programs like grep see whole lines.
    console = Console(width=None if sys.stdout.isatty() else 1000, soft_wrap=False)
    console.print(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Name and value below each other; what is None is left out."""
    shown = [(name, value) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{name + ':':<{width + 2}}{_cell(value)}")


def print_lines(lines: Iterable[str]) -> None:
    """As they are, but for what would move the cursor."""
    for line in lines:
        print(_cell(line))


def moment(text: str | None) -> str | None:
    """A time as people read it, to the second; it stays in UTC."""
    return f"{text[:10]} {text[11:19]}Z" if text else None


def one_line(text: str) -> str:
    """The text as one line: a name may hold whatever a file name may, and must not look like another message."""
    return _cell(text)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
    # What came from a site must not move the cursor or colour the terminal of whoever looks.
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
