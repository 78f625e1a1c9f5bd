"""Gives back the room that messages left behind: rewrites the buffer without its free pages and empties its log.

Nothing needs to stop for it, and nothing is lost if it is interrupted. But whoever writes meanwhile waits, and a script
waits half a minute at most: a large buffer is compacted only while no agent runs.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import apsw

from fieldpost.core.errors import Conflict, NotFound, Unavailable
from fieldpost.site.buffer.agent_lock import running_agent
from fieldpost.site.buffer.connection import connect, log_of, storage_error
from fieldpost.site.buffer.opening import opening

LIVE_BYTES_MAX = 256 * 1024**2
"""Up to so much content is rewritten while others work: well within the time that a script waits."""


@dataclass(frozen=True, slots=True)
class Compacted:
    bytes_before: int
    bytes_after: int


def compact(path: Path) -> Compacted:
    """Rewrite the buffer; how large it and its log were and are.

    Raises Conflict for a large buffer while an agent runs, Unavailable when the disk has not room for a second copy or
    somebody keeps the file busy, NotFound when there is no buffer.
    """
    if not path.exists():
        raise NotFound("buffer.none", f"there is no buffer {path}")
    before = _size(path)
    with opening(path):
        connection = connect(path)
    try:
        pages = connection.pragma("page_count") - connection.pragma("freelist_count")
        live = pages * connection.pragma("page_size")
        _refuse_if_too_large(path, live)
        _refuse_without_room(path, live)
        # The copy may be larger than the memory, so it is made on disk, and on the disk that has the room.
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
            f"{path} holds {live // 1024**2} MiB: to rewrite it takes longer than a script would wait",
            hint=f"stop the agent (process {pid}) and the scripts, then compact",
        )


def _refuse_without_room(path: Path, live: int) -> None:
    # Once as a temporary copy and once in the log, before the old pages are free.
    free = shutil.disk_usage(path.parent).free
    if free < 2 * live + 1024**2:
        raise Unavailable(
            "buffer.full",
            f"to rewrite {path} takes {2 * live // 1024**2 + 1} MiB, and {free // 1024**2} MiB are free",
            hint="free some space, then compact",
        )


def _checkpoint(connection: apsw.Connection, path: Path) -> None:
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    if is_busy:
        raise Unavailable("buffer.busy", f"{path} is rewritten, but another process reads: its log is not emptied yet")


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, log_of(path)) if file.exists())
