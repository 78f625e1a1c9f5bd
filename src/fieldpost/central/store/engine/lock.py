"""The lock of an embedded store: one process works on the SQLite file."""

from pathlib import Path

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.file_lock import FileLock


class StoreLock:
    """Held while a process works on the store, as a context manager. Does nothing for PostgreSQL."""

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        is_embedded = parsed.get_backend_name() == "sqlite"
        self._path = Path(f"{parsed.database}.lock") if is_embedded else None
        self._lock = None if self._path is None else FileLock(self._path)

    def __enter__(self) -> "StoreLock":
        if self._path is None or self._lock is None:
            return self
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            is_ours = self._lock.acquire()
        except OSError as error:
            raise Unavailable("store.no_lock", f"cannot lock {self._path}: {error.strerror or error}") from None
        if not is_ours:
            pid = self._lock.pid()
            raise Conflict(
                "store.locked",
                f"another process{f' (pid {pid})' if pid else ''} is using {self._path.stem}",
                hint="an embedded central is one process: stop the other one, or use PostgreSQL",
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()
