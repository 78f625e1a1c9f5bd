"""Reserved disk space, so that buffered messages can still be forwarded when the disk is full.

Clearing a message writes to the disk, and so does a checkpoint of the log. The agent therefore keeps a file `reserve`
beside the buffer. When the disk is full, the file is truncated and renamed: its space is only for settling messages,
and new messages are refused until the reserve is restored, which happens as soon as there is space.

Half of its size is for the checkpoint, which runs before the log is larger than that (see `connection`), and half for
the log of messages settled meanwhile.
"""

import os
import shutil
from contextlib import suppress
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
        self._file = str(folder / RESERVE_FILE)
        self._spent = str(folder / SPENT_FILE)
        self._size = size

    @property
    def is_given_up(self) -> bool:
        """Whether its space is in use. A reserve that never existed refuses no message."""
        return os.access(self._spent, os.F_OK)

    def keep(self) -> bool:
        """Create or restore the reserve; whether it is complete now. A reserve of size 0 always is."""
        try:
            size = reserve_size(Path(self._file).parent, self._size)
            if size and self._is_complete(size):
                return True
            with suppress(FileNotFoundError):
                # Under its other name until it is complete, so that no message takes the space meanwhile.
                os.rename(self._file, self._spent)
            if size == 0:
                Path(self._spent).unlink(missing_ok=True)
                return True
            with open(self._spent, "ab") as file:
                if not _fill(file.fileno(), size):
                    return False
            with suppress(FileNotFoundError):
                # Another process may have done it at the same time.
                os.rename(self._spent, self._file)
            return self._is_complete(size)
        except OSError:
            return False

    def give_up(self) -> bool:
        """Truncate it; whether that freed space."""
        try:
            os.rename(self._file, self._spent)
            with open(self._spent, "r+b") as file:
                had = os.fstat(file.fileno()).st_size
                file.truncate(0)
                os.fsync(file.fileno())
                return had > 0
        except OSError:
            return False

    def _is_complete(self, size: int) -> bool:
        try:
            return os.stat(self._file).st_size == size
        except FileNotFoundError:
            return False


def _fill(handle: int, size: int) -> bool:
    """Allocate the space: a sparse file would reserve nothing."""
    try:
        os.ftruncate(handle, 0)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.write(handle, bytes(size))
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, 0)
        return False
    return True
