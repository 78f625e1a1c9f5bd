"""The lock of a site's folder: one agent runs for it at a time."""

from pathlib import Path

from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.file_lock import FileLock, holder

LOCK_FILE = "agent.lock"


class AgentLock:
    """Keeps a second agent away from the folder, as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._lock = FileLock(self._path)

    def __enter__(self) -> "AgentLock":
        try:
            is_ours = self._lock.acquire()
        except OSError as error:
            reason = error.strerror or error
            raise Unavailable("agent.no_lock", f"cannot open {self._path} for writing: {reason}") from None
        if not is_ours:
            pid = self._lock.pid()
            raise Conflict(
                "agent.running",
                f"another agent is running for {self._path.parent}" + (f" (process {pid})" if pid else ""),
                hint="stop it first; a folder has one agent",
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def running_agent(folder: Path) -> str | None:
    """The process id of the folder's running agent; None if no agent is running. Changes nothing."""
    return holder(folder / LOCK_FILE)
