"""Salvage: sets a damaged buffer aside under a dated name and copies its readable rows into a new one.

Theory of operation. The damaged file is renamed, with its log and index; it is never deleted or changed. Scripts may be
writing at that moment. So a marker file (`buffer.db-salvage`) first keeps processes from opening the buffer; then the
salvage waits for those that are opening or writing it, and keeps all others out until it has ended (`opening`). Their
earlier writes are read. A process that writes later finds that its file is not the buffer any more (`Committer._begin`,
and `_insert_alone`, which finds out after its insert and repeats it in the new file). The new buffer is completed under
another name and takes the buffer's name last; then the marker is removed. An interrupted salvage resumes from the
marker when it is run again.

Invariants: every readable row is in the new buffer; unreadable ones are counted, and their ids reported if an index
still has them. A call whose record has ended is not made again. The new buffer has a new incarnation, from which
central learns that the file was replaced.
"""

import os
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from fieldpost.core.errors import NotFound, Unavailable
from fieldpost.site.buffer.connection import log_of, salvage_mark, storage_error
from fieldpost.site.buffer.opening import salvaging
from fieldpost.site.repair.rebuild import Salvaged, refill

_SUFFIXES = ("-shm", "-wal", "")
"""The file itself last: once it has its new name, all files have."""


def salvage(path: Path, now: datetime) -> Salvaged:
    """Set the buffer aside and copy its readable rows into a new one. The caller holds the agent's lock.

    Raises NotFound if the buffer does not exist, and Unavailable if a script keeps it locked or the disk fails.
    """
    mark = salvage_mark(path)
    fresh = path.with_name(f"{path.name}-fresh")
    try:
        aside = _mark(path, mark, now)
        with salvaging(path, aside):
            _set_aside(path, aside)
            for suffix in _SUFFIXES:
                _beside(fresh, suffix).unlink(missing_ok=True)
            result = refill(fresh, aside, now)
            # Keep the access rights.
            shutil.copymode(aside, fresh)
            os.replace(fresh, path)
            _sync_folder(path.parent)
            mark.unlink()
            _sync_folder(path.parent)
    except apsw.Error as error:
        raise storage_error(error, path) from error
    except OSError as error:
        raise Unavailable(
            "buffer.io", f"{path} cannot be salvaged: {error}", hint="fix the cause, then run the salvage again"
        ) from error
    return result


def _mark(path: Path, mark: Path, now: datetime) -> Path:
    """Create the marker, or read that of an interrupted salvage; returns the new name of the damaged file."""
    try:
        return path.with_name(mark.read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        if not path.exists() and not log_of(path).exists():
            raise NotFound("buffer.none", f"the buffer {path} does not exist") from None
    aside = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S%fZ}")
    with mark.open("x", encoding="utf-8") as file:
        file.write(f"{aside.name}\n")
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)
    return aside


def _set_aside(path: Path, aside: Path) -> None:
    if aside.exists():
        return
    for suffix in _SUFFIXES:
        # The last process that closes the file deletes log and index.
        with suppress(FileNotFoundError):
            os.rename(_beside(path, suffix), _beside(aside, suffix))
    # The file itself may be missing while its log is not, and the log has much of the content.
    aside.touch(mode=0o600)
    _sync_folder(path.parent)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # Windows cannot sync a folder.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
