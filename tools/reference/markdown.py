"""Markdown helpers for the generated pages."""

from collections.abc import Iterable, Sequence


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(columns), "|" + "---|" * len(columns), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: object) -> str:
    return f"`{text}`" if text != "" else ""


def value(given: object) -> str:
    """A default as written in a settings file."""
    match given:
        case bool():
            return code("true" if given else "false")
        case float() if given.is_integer():
            return code(int(given))
        case str():
            return code(f'"{given}"')
        case _:
            return code(given)


def _row(cells: Sequence[str]) -> str:
    # A bar ends the cell and a line break ends the row.
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
