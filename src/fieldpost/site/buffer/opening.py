"""Locks that keep a salvage apart from processes that open or write the buffer.

Opening a buffer takes several steps: the file, its log and its index are each found by name. A salvage gives these
names to other files. A process that starts to open before the salvage and finishes after it would combine the old file
with the new log, or take the old file for the buffer, and its messages would be lost. So opening holds a shared lock on
`buffer.lock`, and a salvage an exclusive one.

The lock file has the owner and group of the buffer, and the group's access only if the group can write the buffer. A
folder or a file that every user can open could be locked by every user, and `send` would fail.

A process that has the buffer open writes under SQLite's write lock, a lock on one byte of the index. A salvage locks
that byte directly, without SQLite: SQLite may fail before that in a damaged file, while a process with the first pages
in its cache can still write.

If the lock file cannot be opened (permissions changed and not yet copied to it) or locked (a file system without such
locks), opening continues without. On Windows an open file cannot be renamed.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fieldpost.core.errors import Unavailable
from fieldpost.file_lock import try_lock, try_lock_byte, wait_until
from fieldpost.site.buffer.connection import BUSY_TIMEOUT_MS, refuse_salvage

LOCK_FILE = "buffer.lock"

_WRITE_BYTE = 120


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Hold the lock for opening the buffer. Raises Unavailable with the code `buffer.salvaging` during a salvage."""
    lock = _lock_file(path)

    def may_open() -> bool:
        if lock is None or _lock(lock, is_shared=True):
            return True
        refuse_salvage(path)
        return False

    try:
        if not wait_until(may_open, BUSY_TIMEOUT_MS / 1000):
            raise Unavailable("buffer.busy", f"another program keeps {path.with_name(LOCK_FILE)} locked")
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def salvaging(path: Path, aside: Path) -> Iterator[None]:
    """Keep all other processes from opening or writing the buffer, after waiting for those that do.

    The file is at `path`, or at `aside` if an earlier salvage was interrupted. Raises Unavailable if a process does not
    finish. This process must not have the buffer open.
    """
    handles: list[int] = []
    try:
        if (lock := _lock_file(path)) is not None:
            handles.append(lock)
            _wait_for(path, lambda: _lock(lock, is_shared=False))
        for file in (path, aside):
            if (index := _handle(file.with_name(f"{file.name}-shm"), os.O_RDWR)) is not None:
                handles.append(index)
                _wait_for(path, lambda index=index: try_lock_byte(index, _WRITE_BYTE))  # type: ignore[misc]
        yield
    finally:
        for handle in handles:
            os.close(handle)


def _handle(file: Path, flags: int) -> int | None:
    """The file opened only for locking; None if it does not exist or cannot be opened."""
    with suppress(OSError):
        return os.open(file, flags, 0o600) if sys.platform != "win32" else None
    return None


def _lock_file(path: Path) -> int | None:
    """The lock file, opened, with the access rights that the buffer has now; None if it cannot be opened."""
    lock = _handle(path.with_name(LOCK_FILE), os.O_RDWR | os.O_CREAT)
    if lock is not None:
        with suppress(OSError):
            _copy_access(os.stat(path), lock)
    return lock


def _copy_access(buffer: os.stat_result, lock: int) -> None:
    mode = 0o660 if buffer.st_mode & stat.S_IWGRP else 0o600
    found = os.fstat(lock)
    if (found.st_uid, found.st_gid) != (buffer.st_uid, buffer.st_gid):
        os.fchown(lock, buffer.st_uid if os.geteuid() == 0 else -1, buffer.st_gid)
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(lock, mode)


def _wait_for(path: Path, has_lock: Callable[[], bool]) -> None:
    if not wait_until(has_lock, BUSY_TIMEOUT_MS / 1000):
        raise Unavailable(
            "buffer.busy",
            f"a script keeps {path} locked",
            hint="stop the scripts that use this site, then run the salvage again",
        )


def _lock(descriptor: int, *, is_shared: bool) -> bool:
    """Whether the file is locked now, or cannot be locked at all."""
    try:
        return try_lock(descriptor, is_shared=is_shared)
    except OSError:
        return True
