"""The lock file of a site's folder: one agent, and no other, works for it.

The agent holds the lock for itself; whoever only looks whether one runs holds it with others, for a moment. So lookers
are not taken for an agent by each other, and an agent that starts meanwhile waits until they have looked.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from fieldpost.core.errors import Conflict, Unavailable

LOCK_FILE = "agent.lock"
_AGAIN_S = 0.01
_LOOK_S = 5.0
"""How long a look may take at most before it is taken for an agent."""


class AgentLock:
    """Keeps a second agent away from the folder, for as long as this process lives."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file: IO[str] | None = None

    def __enter__(self) -> "AgentLock":
        try:
            file = self._path.open("a+", encoding="utf-8")
        except OSError as error:
            raise Unavailable(
                "agent.no_lock", f"{self._path} cannot be opened for writing: {error.strerror or error}"
            ) from None
        if not _take(file):
            file.seek(0)
            holder = file.read(32).strip()
            file.close()
            raise Conflict(
                "agent.running",
                f"another agent runs for {self._path.parent}" + (f" (process {holder})" if holder else ""),
                hint="stop it first; a folder has one agent",
            ) from None
        # Who holds it is for people to read; that it is held is what counts, also on a full disk.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"{os.getpid()}\n".encode())
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def running_agent(folder: Path) -> str | None:
    """The process id of the agent that runs for this folder, as it wrote it; None if none runs. Changes nothing."""
    try:
        file = (folder / LOCK_FILE).open("r+", encoding="utf-8")
    except OSError:
        return None
    with file:
        if not _look(file):
            file.seek(0)
            return file.read(32).strip() or "unknown"
    return None


if sys.platform == "win32":
    import msvcrt

    def _take(file: IO[str]) -> bool:
        # Far behind the content, so that others can still read who holds it.
        file.seek(1 << 30)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    _look = _take  # such a lock is nobody's with others

else:
    import fcntl

    def _take(file: IO[str]) -> bool:
        """Whether the lock is this process's own from now on."""
        until = time.monotonic() + _LOOK_S
        while not _has(file, fcntl.LOCK_EX):
            if not _look(file) or time.monotonic() > until:
                return False
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(_AGAIN_S)
        return True

    def _look(file: IO[str]) -> bool:
        """Whether nobody has the lock for himself."""
        return _has(file, fcntl.LOCK_SH)

    def _has(file: IO[str], how: int) -> bool:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
