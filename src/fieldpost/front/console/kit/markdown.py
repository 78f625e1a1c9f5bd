"""The subset of Markdown that adapter guides use, parsed into blocks of text.

Pieces are plain, strong or code; the template adds elements and escapes the text. Other syntax is shown as plain text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

BlockKind = Literal["heading", "paragraph", "items", "table", "code"]

_PIECE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+(.*)")
_RULE = re.compile(r"\|[\s:|-]+\|?")


@dataclass(frozen=True, slots=True)
class Piece:
    style: Literal["plain", "strong", "code"]
    text: str


InlineText = Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Block:
    kind: BlockKind
    lines: Sequence[Sequence[InlineText]]
    """Of a table the rows with their cells, the first its head; of all else lines of one cell."""


def read_guide(markdown: str) -> list[Block]:
    """The blocks of a guide in their order, without its title, which the page has already."""
    parts = [part for part in re.split(r"\n\s*\n", markdown) if part.strip()]
    found = [block for part in parts for block in _blocks(part.strip("\n").split("\n"))]
    return found[1:] if found and found[0].kind == "heading" else found


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    for kind, group in groupby(lines, key=_kind):
        some = list(group)
        match kind:
            case "heading":
                yield from (Block("heading", [[_pieces(line.lstrip("# "))]]) for line in some)
            case "table":
                yield Block("table", [_cells(line) for line in some if not _RULE.fullmatch(line.strip())])
            case "items":
                yield Block("items", [[_pieces(text)] for text in _items(some)])
            case "code":
                yield Block("code", [[[Piece("code", "\n".join(line.removeprefix("    ") for line in some))]]])
            case "paragraph":
                yield Block("paragraph", [[_pieces(" ".join(line.strip() for line in some))]])


def _kind(line: str) -> BlockKind:
    if line.startswith("#"):
        return "heading"
    if line.startswith("|"):
        return "table"
    if _ITEM.fullmatch(line) or (line.startswith("  ") and not line.startswith("    ")):
        return "items"
    return "code" if line.startswith("    ") else "paragraph"


def _items(lines: Sequence[str]) -> list[str]:
    """Each item with its continuation lines joined."""
    found: list[str] = []
    for line in lines:
        match = _ITEM.fullmatch(line)
        if match or not found:
            found.append(match[1] if match else line.strip())
        else:
            found[-1] += f" {line.strip()}"
    return found


def _cells(line: str) -> list[InlineText]:
    return [_pieces(cell.strip()) for cell in line.strip().strip("|").split("|")]


def _pieces(text: str) -> InlineText:
    found, end = [], 0
    for match in _PIECE.finditer(text):
        if match.start() > end:
            found.append(Piece("plain", text[end : match.start()]))
        code, strong, slanted, link = match.groups()
        found.append(Piece("code", code) if code else Piece("strong" if strong else "plain", strong or slanted or link))
        end = match.end()
    if end < len(text):
        found.append(Piece("plain", text[end:]))
    return found
