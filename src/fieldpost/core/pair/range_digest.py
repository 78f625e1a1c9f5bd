"""Digests over ranges of ids, by which two nodes prove that they have the same rows.

A range is (after, until], with the ids of one kind of row in their order. Only columns that both nodes share go into a
digest; a row's place in the file of one node does not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

Cell = str | int | bytes | None


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """The digest of the rows with an id in (after, until]; `until` None means to the end."""

    after: str
    until: str | None
    rows: int
    digest: str


def digest_range(after: str, until: str | None, rows: Iterable[Sequence[Cell]]) -> RangeDigest:
    """The digest of these rows, which must be in the order of their ids."""
    count = 0
    total = sha256()
    for row in rows:
        count += 1
        for cell in row:
            kind, content = _encoded(cell)
            total.update(kind + len(content).to_bytes(8, "big") + content)
    return RangeDigest(after, until, count, total.hexdigest())


def _encoded(cell: Cell) -> tuple[bytes, bytes]:
    """A type byte and the content, so that cells of different types never have the same encoding."""
    match cell:
        case None:
            return b"n", b""
        case bytes():
            return b"b", cell
        case str():
            return b"s", cell.encode("utf-8", "surrogatepass")
        case int():
            return b"i", str(cell).encode()
