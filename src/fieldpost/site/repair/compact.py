"""Compacts the buffer: rewrites it without its free pages and empties its log.

Agent and scripts can keep running, and an interruption loses nothing. But writers wait meanwhile, and a script waits at
most half a minute: a large buffer is compacted only while no agent runs.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import apsw

from fieldpost.core.errors import Conflict, NotFound, Unavailable
from fieldpost.site.buffer.agent_lock import running_agent
from fieldpost.site.buffer.connection import connect, file_size, log_of, storage_error
from fieldpost.site.buffer.opening import opening

LIVE_BYTES_MAX = 256 * 1024**2
"""The most content that is rewritten while an agent runs: well within the time that a script waits."""


@dataclass(frozen=True, slots=True)
class Compacted:
    bytes_before: int
    bytes_after: int


def compact(path: Path) -> Compacted:
    """Rewrite the buffer; returns the size of file and log before and after.

    Raises Conflict for a large buffer while an agent runs, Unavailable if the disk lacks space for a second copy or the
    file is busy, and NotFound if the buffer does not exist.
    """
    if not path.exists():
        raise NotFound("buffer.none", f"the buffer {path} does not exist")
    before = _size(path)
    with opening(path):
        connection = connect(path)
    try:
        pages = connection.pragma("page_count") - connection.pragma("freelist_count")
        live = pages * connection.pragma("page_size")
        _refuse_if_too_large(path, live)
        _refuse_without_space(path, live)
        # The copy may be larger than the memory, so it goes to the disk that was checked for space.
        connection.execute("PRAGMA temp_store=FILE")
        connection.pragma("temp_store_directory", str(path.parent.resolve()))
        connection.execute("VACUUM")
        _checkpoint(connection, path)
    except apsw.Error as error:
        raise storage_error(error, path) from error
    finally:
        connection.pragma("temp_store_directory", "")
        connection.close(True)
    return Compacted(before, _size(path))


def _refuse_if_too_large(path: Path, live: int) -> None:
    pid = running_agent(path.parent)
    if live > LIVE_BYTES_MAX and pid is not None:
        raise Conflict(
            "buffer.too_large_to_compact",
            f"{path} has {live // 1024**2} MiB: rewriting it takes longer than a script would wait",
            hint=f"stop the agent (process {pid}) and the scripts, then compact",
        )


def _refuse_without_space(path: Path, live: int) -> None:
    # For a temporary copy and for the log, before the old pages are freed.
    free = shutil.disk_usage(path.parent).free
    if free < 2 * live + 1024**2:
        raise Unavailable(
            "buffer.full",
            f"rewriting {path} needs {2 * live // 1024**2 + 1} MiB, but only {free // 1024**2} MiB are free",
            hint="free some space, then compact",
        )


def _checkpoint(connection: apsw.Connection, path: Path) -> None:
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    if is_busy:
        raise Unavailable(
            "buffer.busy", f"{path} was rewritten, but its log could not be emptied because another process reads it"
        )


def _size(path: Path) -> int:
    return sum(file_size(file) or 0 for file in (path, log_of(path)))
