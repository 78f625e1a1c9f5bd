"""Reserved disk space, so that buffered messages can still be forwarded when the disk is full.

Clearing a message writes to the disk, and so does a checkpoint of the log. So a file `reserve` is kept beside the
buffer from its first opening on. When the disk is full, the file is truncated and renamed: its space is only for
settling messages, and new messages are refused until the reserve is restored, which happens as soon as there is space.

Half of its size is for the checkpoint, which runs before the log is larger than that (see `connection`), and half for
the log of messages settled meanwhile. A checkpoint into free pages of the buffer needs no space, so half is enough for
a buffer with as many free pages.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RESERVE_FILE = "reserve"
SPENT_FILE = "reserve.spent"
"""Its name after it was given up, so that adding a message only needs to check whether a file exists."""


def reserve_size(folder: Path, size: int) -> int:
    """The size of the reserve on this disk: `size`, but at most a quarter of the disk. Raises OSError."""
    return min(size, shutil.disk_usage(folder).total // 4)


class Reserve:
    """The reserve of one buffer. Any process may give it up or restore it."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._file = str(folder / RESERVE_FILE)
        self._spent = str(folder / SPENT_FILE)
        self._size = size

    @property
    def is_given_up(self) -> bool:
        """Whether its space is in use. A reserve that could not be created refuses no message."""
        return os.access(self._spent, os.F_OK)

    def create(self) -> None:
        """Create the reserve of a new buffer."""
        if not os.access(self._file, os.F_OK) and not self.is_given_up:
            self.keep()

    def keep(self, free_pages_bytes: int = 0) -> bool:
        """Create, restore or resize the reserve; whether it is complete now. A reserve of size 0 always is.

        With enough free pages in the buffer, half of it is complete too, if that leaves space for the log of new
        messages.
        """
        try:
            size = reserve_size(self._folder, self._size)
            if size == 0:
                Path(self._file).unlink(missing_ok=True)
                Path(self._spent).unlink(missing_ok=True)
                return True
            kept = _size(self._file)
            free = self._free_bytes()
            if size * 5 // 8 <= free < size and free_pages_bytes >= size // 2:
                size //= 2
            if kept >= 0 and (kept == size or free < size):
                return kept >= size
            with suppress(FileNotFoundError):
                # Under its other name until it is complete, so that no message takes the space meanwhile.
                os.rename(self._file, self._spent)
            if not self._fill(size):
                return False
            with suppress(FileNotFoundError):
                # Another process may have done it at the same time.
                os.rename(self._spent, self._file)
            return _size(self._file) == size
        except OSError:
            return False

    def give_up(self) -> bool:
        """Truncate it; whether that freed space."""
        try:
            os.rename(self._file, self._spent)
            had = _size(self._spent)
            with self._emptied() as handle:
                os.fsync(handle)
            return had > 0
        except OSError:
            return False

    def is_disk_nearly_full(self, free_pages_bytes: int) -> bool:
        """Whether the disk has less free space than the reserve's size, and free pages of the buffer would help."""
        try:
            size = reserve_size(self._folder, self._size)
            return free_pages_bytes >= size // 2 and self._free_bytes() < 2 * size
        except OSError:
            return False

    def _free_bytes(self) -> int:
        """The free space of the disk, including the reserve's."""
        return shutil.disk_usage(self._folder).free + max(_size(self._file), 0)

    def _fill(self, size: int) -> bool:
        """Allocate the space: a sparse file would reserve nothing."""
        with self._emptied() as handle:
            # Checked first: a failing allocation would take all space for a moment, and settling might need it then.
            if shutil.disk_usage(self._folder).free < size:
                return False
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(handle, 0, size)
                else:
                    os.write(handle, bytes(size))
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, 0)
                return False
        return True

    @contextmanager
    def _emptied(self) -> Iterator[int]:
        """The spent file, open and truncated."""
        try:
            handle = os.open(self._spent, os.O_WRONLY | os.O_CREAT, 0o666)
        except PermissionError:
            # Another user of the folder created it.
            os.unlink(self._spent)
            handle = os.open(self._spent, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.ftruncate(handle, 0)
            yield handle
        finally:
            os.close(handle)


def _size(file: str) -> int:
    """The size of the file; -1 if it does not exist."""
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return -1
