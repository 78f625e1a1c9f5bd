"""The lock file beside an embedded database: one process, and no other, works on the file."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import IO

from fieldpost.central.store.engine.database_url import parse_url
from fieldpost.core.errors import Conflict

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class StoreLock:
    """Held for as long as the process works on the store; on PostgreSQL, where many may, it does nothing."""

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        is_embedded = parsed.get_backend_name() == "sqlite"
        self._path = Path(f"{parsed.database}.lock") if is_embedded else None
        self._file: IO[str] | None = None

    def __enter__(self) -> "StoreLock":
        if self._path is None:
            return self
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        try:
            _lock(file)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise Conflict(
                "store.locked",
                f"another process{f' (pid {holder})' if holder else ''} already works on {self._path.stem}",
                hint="an embedded central is one process: stop the other one, or use PostgreSQL for several",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _lock(file: IO[str]) -> None:
    if sys.platform == "win32":
        # A byte far behind the pid, so that others can still read who holds it.
        file.seek(1 << 20)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
