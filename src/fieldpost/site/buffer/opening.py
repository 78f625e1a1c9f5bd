"""Opening a buffer, writing it and salvaging it: who keeps whom out.

To open a buffer takes several steps: the file, its log, its index, each found by its name. A salvage gives these names
to others. A process that began to open before that and ended after it would have the old file with the new one's log,
or take the old file for the buffer; and what it then confirms would be where nobody looks. So whoever opens holds a
shared lock on the folder while it does, and a salvage an exclusive one.

Whoever has the buffer open already writes it by SQLite's right to write, which is a lock on one byte of the index. A
salvage takes that byte itself rather than by SQLite, which may not get so far in a damaged file, while a process that
has its first pages in memory still can write it.

Where a folder cannot be locked (no right to read it, a file system without such locks) opening goes on without. On
Windows no file that is open can get another name.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fieldpost.core.errors import Unavailable
from fieldpost.file_lock import try_lock, try_lock_byte, wait_until
from fieldpost.site.buffer.connection import BUSY_TIMEOUT_MS, refuse_salvage

_WRITE_BYTE = 120


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Open the buffer within. Raises Unavailable while a salvage is under way, with the code `buffer.salvaging`."""
    folder = _handle(path.parent, os.O_RDONLY)

    def may_open() -> bool:
        if folder is None or _lock_folder(folder, is_shared=True):
            return True
        refuse_salvage(path)
        return False

    try:
        if not wait_until(may_open, BUSY_TIMEOUT_MS / 1000):
            raise Unavailable("buffer.busy", f"another program keeps the folder {path.parent} locked")
        yield
    finally:
        if folder is not None:
            os.close(folder)


@contextmanager
def salvaging(path: Path, aside: Path) -> Iterator[None]:
    """Within, nobody opens the buffer, and nobody who has it open writes it; whoever had begun to has ended.

    The file is at `path`, or at `aside` if an earlier salvage was interrupted. Raises Unavailable if somebody does not
    end. In this process nothing may have it open.
    """
    handles: list[int] = []
    try:
        if (folder := _handle(path.parent, os.O_RDONLY)) is not None:
            handles.append(folder)
            _wait_for(path, lambda: _lock_folder(folder, is_shared=False))
        for file in (path, aside):
            if (index := _handle(file.with_name(f"{file.name}-shm"), os.O_RDWR)) is not None:
                handles.append(index)
                _wait_for(path, lambda index=index: try_lock_byte(index, _WRITE_BYTE))  # type: ignore[misc]
        yield
    finally:
        for handle in handles:
            os.close(handle)


def _handle(file: Path, flags: int) -> int | None:
    """The file opened for its locks alone; None if there is none, or none to be had."""
    with suppress(OSError):
        return os.open(file, flags) if sys.platform != "win32" else None
    return None


def _wait_for(path: Path, is_had: Callable[[], bool]) -> None:
    if not wait_until(is_had, BUSY_TIMEOUT_MS / 1000):
        raise Unavailable(
            "buffer.busy",
            f"a script does not let go of {path}",
            hint="stop the scripts that use this site, then run the salvage again",
        )


def _lock_folder(folder: int, *, is_shared: bool) -> bool:
    """Whether the folder is locked now, or cannot be locked at all."""
    try:
        return try_lock(folder, is_shared=is_shared)
    except OSError:
        return True
