"""Reads a buffer's file and write-ahead log page by page without SQLite, which stops at the first damaged page.

The pages are those of the file, overlaid with those that the log (`-wal`) has up to its last complete commit, as SQLite
would see them. For SQLite a log that is damaged in the middle ends there, and later commits are silently lost. So the
log is checked here, and `beyond_damage` reads the commits behind the damage.

This process must not have the file open by SQLite: closing a file drops the locks that the process has on it.
"""

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

if sys.platform == "linux":
    import fcntl

PAGE_BYTES_DEFAULT = 4096
"""The page size of every buffer; used if the header of a file cannot be read."""
READS_MAX = 20
"""How often a log is read, to distinguish damage from a write in progress."""

_MAGIC = b"SQLite format 3\0"
_LOG_MAGICS = {0x377F0682: "<", 0x377F0683: ">"}
_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_INDEX_HEADER = struct.Struct("=I8xB3xI12x8s")
_INDEX_VERSION = 3007000
_IN_USE_BYTE = 128
_FILE_LOCK = struct.Struct("@hhqqi")


class Pages:
    """The pages of one file with its log, numbered from 1 as in SQLite."""

    def __init__(self, file: Path, log: Path, *, beyond_damage: bool = False) -> None:
        self._file = file.open("rb")
        try:
            self._log: IO[bytes] | None = log.open("rb")
        except FileNotFoundError:
            self._log = None
        header = self._file.read(100)
        found = read_log(self._log, beyond_damage=beyond_damage) if self._log is not None else WriteAheadLog()
        self.size = _page_bytes(header) or found.page_bytes or PAGE_BYTES_DEFAULT
        reserved = header[20] if _page_bytes(header) else 0
        self.usable = self.size - min(reserved, self.size - 480)
        self._in_log = found.pages if found.page_bytes in (0, self.size) else {}
        in_file = self._file.seek(0, 2) // self.size
        self.count = max(in_file, max(self._in_log, default=0))

    def page(self, number: int) -> bytes | None:
        """The content of a page; None if it is missing."""
        offset = self._in_log.get(number)
        if offset is not None and self._log is not None:
            self._log.seek(offset)
            content = self._log.read(self.size)
        elif 1 <= number <= self.count:
            self._file.seek((number - 1) * self.size)
            content = self._file.read(self.size)
        else:
            return None
        return content if len(content) == self.size else None

    def free(self) -> Iterator[int]:
        """The free pages, as far as the free list can be read."""
        first = self.page(1)
        trunk = int.from_bytes(first[32:36]) if first is not None and first[:16] == _MAGIC else 0
        seen: set[int] = set()
        while trunk and trunk not in seen and (content := self.page(trunk)) is not None:
            seen.add(trunk)
            yield trunk
            leaves = min(int.from_bytes(content[4:8]), self.size // 4 - 2)
            yield from struct.unpack_from(f">{leaves}I", content, 8)
            trunk = int.from_bytes(content[:4])

    def close(self) -> None:
        self._file.close()
        if self._log is not None:
            self._log.close()


@dataclass(frozen=True, slots=True)
class WriteAheadLog:
    """The content of a write-ahead log."""

    page_bytes: int = 0
    pages: dict[int, int] = field(default_factory=dict)
    """The offset of the newest committed content of each page."""
    is_header_damaged: bool = False
    commits_behind_damage: int = 0
    """Commits that SQLite does not see because of earlier damage. A single one may be a commit interrupted by a power
    failure; two cannot, since each commit is synced before the next."""
    frames: int = 0
    """Page images up to the last complete commit."""
    salts: bytes = b""

    @property
    def damage(self) -> str | None:
        """A description of the damage; None if the log is intact."""
        if self.is_header_damaged:
            return "the header of its write-ahead log cannot be read"
        if self.commits_behind_damage > 1:
            return f"its write-ahead log is damaged in the middle, with {self.commits_behind_damage} commits after that"
        return None


def judge_log(path: Path) -> WriteAheadLog:
    """The content of the log, including whether commits are hidden behind damage."""
    try:
        with path.open("rb", buffering=0) as file:
            found = read_log(file)
            for _ in range(READS_MAX):
                if found.damage is None:
                    break
                # Other processes may write: a log that was reset while it was read seems to be damaged. Real damage is
                # still there when it is read again.
                before, found = found, read_log(file)
                if (before.salts, before.frames) == (found.salts, found.frames):
                    break
            return found
    except FileNotFoundError:
        return WriteAheadLog()


def is_log_header_damaged(path: Path) -> bool:
    """Whether SQLite would take this log for an empty one and overwrite its content.

    A log that was never synced is empty or starts with zeros; that is not damage.
    """
    try:
        with path.open("rb", buffering=0) as file:
            # Another process may be writing the header at this moment, but not twice in a row.
            return all(_log_order(_read_header(file)) is None for _ in range(2))
    except OSError:
        return False


def read_log(file: IO[bytes], *, beyond_damage: bool = False) -> WriteAheadLog:
    """The newest committed content of each page. `beyond_damage` includes page images with wrong checksums."""
    header = _read_header(file)
    order = _log_order(header)
    if not any(header) or len(header) < _LOG_HEADER.size:
        return WriteAheadLog()
    _, _, page_bytes, _, salt_1, salt_2, *sums = _LOG_HEADER.unpack(header)
    if order is None:
        # The salts are unreliable too: use those of the first frame to find the frames that belong together.
        page_bytes = page_bytes if page_bytes in _PAGE_SIZES else PAGE_BYTES_DEFAULT
        first = file.read(_FRAME_HEADER.size)
        if len(first) < _FRAME_HEADER.size:
            return WriteAheadLog(page_bytes, is_header_damaged=True)
        salt_1, salt_2 = _FRAME_HEADER.unpack(first)[2:4]
    checksum = (sums[0], sums[1])
    committed: dict[int, int] = {}
    frames = 0
    pending: dict[int, int] = {}
    is_whole = order is not None
    commits_behind = 0
    offset = _LOG_HEADER.size
    while True:
        file.seek(offset)
        frame = file.read(_FRAME_HEADER.size + page_bytes)
        if len(frame) < _FRAME_HEADER.size + page_bytes:
            break
        number, pages_after, *salts = _FRAME_HEADER.unpack_from(frame)
        is_ours = salts[:2] == [salt_1, salt_2] and number > 0
        if is_whole and is_ours:
            assert order is not None
            checksum = _checksum(frame[:8], order, checksum)
            checksum = _checksum(frame[_FRAME_HEADER.size :], order, checksum)
        is_whole = is_whole and is_ours and checksum == (salts[2], salts[3])
        if is_ours and (is_whole or beyond_damage):
            pending[number] = offset + _FRAME_HEADER.size
        offset += len(frame)
        if is_ours and pages_after:
            commits_behind += not is_whole
            frames = (offset - _LOG_HEADER.size) // len(frame) if is_whole else frames
            committed |= pending
            pending.clear()
    return WriteAheadLog(page_bytes, committed, order is None, commits_behind, frames, header[16:24])


def is_in_use(index: Path) -> bool:
    """Whether a process has the file open by SQLite, which then holds a lock on one byte of the index (`-shm`).

    Works only on Linux; elsewhere the result is False. This process must not have the file open.
    """
    if sys.platform != "linux":
        return False
    try:
        with index.open("rb", buffering=0) as file:
            asked = _FILE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _IN_USE_BYTE, 1, 0)
            found = _FILE_LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return False
    return bool(found[0] != fcntl.F_UNLCK)


def salts_of(path: Path) -> bytes:
    """The salts of the log, which change with every reset."""
    try:
        with path.open("rb", buffering=0) as file:
            return _read_header(file)[16:24]
    except OSError:
        return b""


def frames_known(index: Path, salts: bytes) -> int:
    """The number of committed page images of this log according to its index (`-shm`); 0 if unknown.

    The index is written after the log was synced: a log with fewer page images was truncated.
    """
    try:
        with index.open("rb") as file:
            content = file.read(_INDEX_HEADER.size)
    except OSError:
        return 0
    if len(content) < _INDEX_HEADER.size:
        return 0
    version, is_made, last_frame, index_salts = _INDEX_HEADER.unpack(content)
    return last_frame if version == _INDEX_VERSION and is_made and salts and index_salts == salts else 0


_PAGE_SIZES = {2**power for power in range(9, 17)}


def _page_bytes(header: bytes) -> int | None:
    size = int.from_bytes(header[16:18])
    size = 65536 if size == 1 else size
    return size if header[:16] == _MAGIC and size in _PAGE_SIZES else None


def _read_header(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(_LOG_HEADER.size)


def _log_order(header: bytes) -> str | None:
    """The byte order of the log's checksums; None for a damaged header."""
    if len(header) < _LOG_HEADER.size or not any(header):
        return "<"
    magic, *_, sum_1, sum_2 = _LOG_HEADER.unpack(header)
    order = _LOG_MAGICS.get(magic)
    return order if order and _checksum(header[:24], order, (0, 0)) == (sum_1, sum_2) else None


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    one, two = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
