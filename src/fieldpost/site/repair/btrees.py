"""Reads the rows of a damaged buffer from its B-trees: each tree from its root, skipping unreadable pages, then leaves
that no tree reaches any more. The file format is SQLite's, which is stable.

An invalid cell is counted and skipped; no value of a page is used unchecked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fieldpost.site.buffer.file_pages import Pages

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13

_FLOAT = 7
_BLOB_MIN = 12
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class Damaged(Exception):
    """A page or cell violates the file format."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One row, or one entry of an index (without a row id)."""

    values: Sequence[Any]
    row_id: int | None = None


@dataclass(slots=True)
class Trees:
    """Walks the trees of a file and records the pages it visited."""

    pages: Pages
    seen: set[int] = field(default_factory=set)
    damaged_pages: set[int] = field(default_factory=set)
    damaged_cells: int = 0

    def rows(self, root: int) -> Iterator[TreeRow]:
        """All readable rows of the tree with this root, in order."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in self.seen:
                continue
            self.seen.add(number)
            try:
                page = _Page(self.pages, number)
            except Damaged:
                self.damaged_pages.add(number)
                continue
            # A stack: push from the right, so that the leftmost child comes first.
            waiting.extend(reversed(list(page.children())))
            yield from self._rows_of(page)

    def orphans(self) -> Iterator[tuple[int, list[TreeRow]]]:
        """Table leaves that no walk has reached and that are not free, with their rows."""
        known = self.seen | set(self.pages.free())
        for number in range(1, self.pages.count + 1):
            if number in known:
                continue
            try:
                page = _Page(self.pages, number)
            except Damaged:
                continue
            if page.kind == TABLE_LEAF and (found := list(self._rows_of(page))):
                yield number, found

    def _rows_of(self, page: "_Page") -> Iterator[TreeRow]:
        if page.kind == TABLE_INTERIOR:
            return
        for offset in page.cells:
            try:
                yield page.row(offset, self.seen)
            except (Damaged, IndexError, ValueError):
                self.damaged_cells += 1


class _Page:
    """One page of a tree, with a checked header."""

    def __init__(self, pages: Pages, number: int) -> None:
        content = pages.page(number)
        if content is None:
            raise Damaged(f"page {number} is missing")
        start = 100 if number == 1 else 0
        self._pages = pages
        self._content = content
        self.kind = content[start]
        if self.kind not in (INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF):
            raise Damaged(f"page {number} has an unknown type")
        self._is_interior = self.kind in (INDEX_INTERIOR, TABLE_INTERIOR)
        head = start + (12 if self._is_interior else 8)
        count = int.from_bytes(content[start + 3 : start + 5])
        if head + 2 * count > pages.usable:
            raise Damaged(f"page {number} has more cells than fit")
        self.cells = [int.from_bytes(content[at : at + 2]) for at in range(head, head + 2 * count, 2)]
        if any(not head + 2 * count <= offset < pages.usable for offset in self.cells):
            raise Damaged(f"page {number} has cells outside the page")
        self._right = int.from_bytes(content[start + 8 : start + 12]) if self._is_interior else 0

    def children(self) -> Iterator[int]:
        """The child pages; invalid page numbers are skipped."""
        if self._is_interior:
            below = [int.from_bytes(self._content[offset : offset + 4]) for offset in self.cells]
            yield from (number for number in [*below, self._right] if 1 <= number <= self._pages.count)

    def row(self, offset: int, seen: set[int]) -> TreeRow:
        """The row of the cell at this offset; its overflow pages are added to `seen`."""
        if self.kind == INDEX_INTERIOR:
            offset += 4
        size, offset = _varint(self._content, offset)
        row_id: int | None = None
        if self.kind == TABLE_LEAF:
            row_id, offset = _varint(self._content, offset)
            row_id = row_id - (1 << 64) if row_id >> 63 else row_id
        return TreeRow(_record(self._payload(size, offset, seen)), row_id)

    def _payload(self, size: int, offset: int, seen: set[int]) -> bytes:
        usable = self._pages.usable
        is_table = self.kind == TABLE_LEAF
        local_max = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if size <= local_max:
            local = size
        else:
            local_min = (usable - 12) * 32 // 255 - 23
            local = local_min + (size - local_min) % (usable - 4)
            local = local if local <= local_max else local_min
        if size > usable * self._pages.count or offset + local > usable:
            raise Damaged("a cell is larger than its page")
        parts = [self._content[offset : offset + local]]
        missing = size - local
        following = int.from_bytes(self._content[offset + local : offset + local + 4]) if missing else 0
        chain: set[int] = set()
        while missing > 0:
            content = None if following in chain else self._pages.page(following)
            if content is None:
                raise Damaged("an overflow page is missing")
            chain.add(following)
            parts.append(content[4 : min(usable, 4 + missing)])
            missing -= len(parts[-1])
            following = int.from_bytes(content[:4])
        seen |= chain
        return b"".join(parts)


def _record(payload: bytes) -> list[Any]:
    head_bytes, at = _varint(payload, 0)
    if head_bytes > len(payload):
        raise Damaged("the header of a row is longer than the row")
    kinds = []
    while at < head_bytes:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values = []
    for kind in kinds:
        value, at = _value(kind, payload, at)
        values.append(value)
    if at != len(payload):
        raise Damaged("a row is longer than its header says")
    return values


def _value(kind: int, payload: bytes, at: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind in _INTEGER_BYTES or kind == _FLOAT:
        end = at + _INTEGER_BYTES.get(kind, 8)
        if end > len(payload):
            raise Damaged("a row ends too early")
        # No column of the buffer has floating-point values.
        return (None if kind == _FLOAT else int.from_bytes(payload[at:end], signed=True)), end
    if kind < _BLOB_MIN:
        raise Damaged("a value has an unknown type")
    end = at + (kind - _BLOB_MIN) // 2
    if end > len(payload):
        raise Damaged("a row ends too early")
    content = payload[at:end]
    return (content.decode("utf-8") if kind % 2 else content), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(9):
        byte = data[at + step]
        if step == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    raise AssertionError
