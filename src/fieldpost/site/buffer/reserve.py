"""Room kept back on the site's disk, so that what is buffered can still leave when the disk is full.

Clearing a message writes too, and so does moving the log into the file. The agent therefore keeps a file `reserve`
beside the buffer. When a disk is found full, the file is emptied and renamed: the room it held is for settling alone,
and whoever would add a message is refused until the reserve is whole again, which it is made as soon as there is room.

Its size follows from what must fit: half of it is for the log's content, which is moved into the file before it is
larger than that (see `connection`), the other half for the log of what is settled meanwhile.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

RESERVE_FILE = "reserve"
SPENT_FILE = "reserve.spent"
"""Its name once it was given up: to look for a name is all that whoever adds a message has to do."""


def reserve_size(folder: Path, size: int) -> int:
    """The size of a reserve on this disk: as wanted, but at most a quarter of the disk. Raises OSError."""
    return min(size, shutil.disk_usage(folder).total // 4)


class Reserve:
    """The reserve of one buffer; any process may give it up or make it again."""

    def __init__(self, folder: Path, size: int) -> None:
        self._file = str(folder / RESERVE_FILE)
        self._spent = str(folder / SPENT_FILE)
        self._size = size

    @property
    def is_given_up(self) -> bool:
        """Whether it was there and its room is in use. One that was never made refuses nobody."""
        return os.access(self._spent, os.F_OK)

    def keep(self) -> bool:
        """Make it whole if it is not; whether it now is. A reserve of size 0 always is."""
        try:
            size = reserve_size(Path(self._file).parent, self._size)
            if size and self._is_whole(size):
                return True
            with suppress(FileNotFoundError):
                # Under its other name until it is whole, so that nobody adds into the room that it is about to take.
                os.rename(self._file, self._spent)
            if size == 0:
                Path(self._spent).unlink(missing_ok=True)
                return True
            with open(self._spent, "ab") as file:
                if not _fill(file.fileno(), size):
                    return False
            with suppress(FileNotFoundError):
                # Another process may have been as quick.
                os.rename(self._spent, self._file)
            return self._is_whole(size)
        except OSError:
            return False

    def give_up(self) -> bool:
        """Empty it; whether that made room."""
        try:
            os.rename(self._file, self._spent)
            with open(self._spent, "r+b") as file:
                had = os.fstat(file.fileno()).st_size
                file.truncate(0)
                os.fsync(file.fileno())
                return had > 0
        except OSError:
            return False

    def _is_whole(self, size: int) -> bool:
        try:
            return os.stat(self._file).st_size == size
        except FileNotFoundError:
            return False


def _fill(handle: int, size: int) -> bool:
    """Take the room for good: a file that merely claims its size would hold none."""
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
