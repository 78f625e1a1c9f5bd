"""Printing: tables and fields for people, JSON for programs.

A command hands over central's answer and a declaration of how people see it: a `Table` for rows, a mapping of labels
for one record. `--json` prints the answer unchanged.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from fieldpost.cli.options import is_json
from fieldpost.core.text import printable

Record = Mapping[str, Any]
CellSource = str | Callable[[Any], object]
"""A field's name, or a function of the record. A field `…_at` is printed as a time."""


@dataclass(frozen=True)
class Table:
    """How the rows of one noun are printed."""

    rows: str
    """The field of the answer that holds the rows."""
    columns: Mapping[str, CellSource]
    empty: str
    """Printed instead of a table without rows; suggests the next command where there is one."""


def columns(*given: str | tuple[str, CellSource]) -> dict[str, CellSource]:
    """Labels and their cells, in order: field names separated by spaces, `label=field`, or pairs of label and cell.

    An underscore in a name is printed as a space.
    """
    found: dict[str, CellSource] = {}
    for one in given:
        pairs = [text.partition("=")[::2] for text in one.split()] if isinstance(one, str) else [one]
        found |= {label.replace("_", " "): cell or label for label, cell in pairs}
    return found


def table(rows: str, *given: str | tuple[str, CellSource], empty: str) -> Table:
    """A table of these columns; see `columns`."""
    return Table(rows, columns(*given), empty)


def show_table(answer: Record, table: Table) -> None:
    """Print the answer's rows, and how to get the next page if there is one."""
    if is_json():
        print_json(answer)
        return
    print_rows(table.columns, answer[table.rows], table.empty)
    if more := answer.get("next_cursor") or answer.get("next"):
        print(f"\nMore results: --cursor {more}")


def show_fields(answer: Record, fields: Mapping[str, CellSource], *more: tuple[str, object]) -> None:
    """Print one record, one labelled field per line; fields without a value are left out."""
    if is_json():
        print_json(answer)
    else:
        print_fields([(label, _value(answer, cell)) for label, cell in fields.items()] + list(more))


def done(answer: object, text: str) -> None:
    """Report the result of an action: the answer as JSON, or a sentence."""
    print_json(answer) if is_json() else print(text)


def print_json(value: object, stream: IO[str] | None = None) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False), file=stream)


def print_rows(columns: Mapping[str, CellSource], records: Iterable[Any], empty: str = "") -> None:
    print_table(list(columns), [[_value(one, cell) for cell in columns.values()] for one in records], empty)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Print a table, without colours unless stdout is a terminal; `empty` if it has no rows."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    found = [[Text(_cell(value)) for value in row] for row in rows]
    if not found:
        print(empty)
        return
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in found:
        table.add_row(*row)
    # A pipe has no width; print whole lines there, so that grep and awk see them.
    Console(width=None if sys.stdout.isatty() else 1000, soft_wrap=False).print(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print labels and values below each other; None is left out."""
    shown = [(label, value) for label, value in fields if value is not None]
    width = max((len(label) for label, _ in shown), default=0)
    for label, value in shown:
        print(f"{label + ':':<{width + 2}}{_cell(value)}")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without the characters that control a terminal."""
    for line in lines:
        print(_cell(line))


def moment(text: str | None) -> str | None:
    """A time in UTC, to the second."""
    return f"{text[:10]} {text[11:19]}Z" if text else None


def or_never(field: str) -> CellSource:
    """A time, or `never` where there is none."""
    return lambda record: moment(record[field]) or "never"


def health_of(record: Record) -> str:
    """The health of a channel or subscription, as the console shows it."""
    return "not tried yet" if record["health"] == "untried" else str(record["health"])


def short(field: str, length: int) -> CellSource:
    """A text, truncated to this length."""

    def cell(record: Record) -> str | None:
        text: str | None = record[field]
        return text if text is None or len(text) <= length else text[: length - 1] + "…"

    return cell


def counts(found: Mapping[str, int] | None) -> str | None:
    """`3 parked, 1 rejected`; None if every count is zero."""
    return ", ".join(f"{count} {name}" for name, count in (found or {}).items() if count) or None


def _value(record: Any, cell: CellSource) -> object:
    if callable(cell):
        return cell(record)
    value = record[cell]
    return moment(value) if cell.endswith("_at") else value


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
    # Text from a site must not move the cursor or change the colours of the operator's terminal.
    return printable(text)
