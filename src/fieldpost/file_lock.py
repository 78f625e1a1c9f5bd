"""File locks between processes: the only module that locks files.

A lock is advisory and ends with the process that holds it, even if that is killed. The holder writes its process id
into the file, for error messages; the lock counts, not the id. A check whether a lock is held takes it shared for a
moment. Checks therefore do not disturb each other, and `acquire` waits until they are over.

Anyone who can open a file can lock it, so a lock file is for its owner only: otherwise any user of the machine could
keep Fieldpost from starting.

On Windows there are no shared locks: there a check can make another check, or `acquire`, fail.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

CHECK_S = 5.0
"""How long `acquire` waits for checks by other processes."""
POLL_S = 0.01
PID_BYTES_MAX = 32
MODE = 0o600


class FileLock:
    """The exclusive lock on one file, which is created if missing. Released by `release` or the end of the process.

    A child process that inherits the descriptor `fileno()` holds the lock, too, until both are closed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Take the lock; False if another process holds it. Raises OSError if the file cannot be opened."""
        file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, MODE), "r+", encoding="utf-8")
        _make_private(file.fileno())
        if not _take(file.fileno()):
            file.close()
            return False
        # The process id is for people; a full disk must not prevent the lock.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{os.getpid()}\n".encode())
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def fileno(self) -> int:
        assert self._file is not None, "the lock is held"
        return self._file.fileno()

    def pid(self) -> str:
        """The process id in the file: of the holder while the lock is held; may be empty."""
        with self._path.open("rb") as file:
            return file.read(PID_BYTES_MAX).decode("ascii", "replace").strip()


def holder(path: Path) -> str | None:
    """The process id of the lock's holder, `unknown` if the file has none, None if nobody holds it. Changes nothing."""
    try:
        file = path.open("r+", encoding="utf-8")
    except OSError:
        return None
    with file:
        return None if try_lock(file.fileno(), is_shared=True) else FileLock(path).pid() or "unknown"


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds; False if it does not hold within the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


if sys.platform == "win32":
    import msvcrt

    _BYTE = 1 << 30
    """The locked byte, far behind the process id, which others can still read."""

    def try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
        os.lseek(descriptor, _BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def try_lock_byte(descriptor: int, byte: int) -> bool:
        return True

    def _take(descriptor: int) -> bool:
        return try_lock(descriptor)

    def _make_private(descriptor: int) -> None:
        return None

else:
    import fcntl

    def try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
        """Lock a file or folder without waiting; False if that conflicts with another lock."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            return False
        return True

    def try_lock_byte(descriptor: int, byte: int) -> bool:
        """Lock one byte the way SQLite does, without waiting; False if another process has locked it."""
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def _take(descriptor: int) -> bool:
        """Lock exclusively; while only checks are in the way, wait for them."""
        is_held = False

        def taken() -> bool:
            nonlocal is_held
            if try_lock(descriptor):
                return True
            if not try_lock(descriptor, is_shared=True):
                is_held = True
                return True
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            return False

        return wait_until(taken, CHECK_S) and not is_held

    def _make_private(descriptor: int) -> None:
        """Withdraw the access of other users, unless the file belongs to another user."""
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != MODE:
            with suppress(PermissionError):
                os.fchmod(descriptor, MODE)
