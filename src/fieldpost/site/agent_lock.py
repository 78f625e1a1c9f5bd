"""The lock file of a site's folder: one agent, and no other, works for it."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

from fieldpost.core.errors import Conflict, Unavailable

LOCK_FILE = "agent.lock"


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
        try:
            _lock(file)
        except OSError:
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
        try:
            _lock(file)
        except OSError:
            file.seek(0)
            return file.read(32).strip() or "unknown"
    return None


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        # Far behind the content, so that others can still read who holds it.
        file.seek(1 << 30)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
