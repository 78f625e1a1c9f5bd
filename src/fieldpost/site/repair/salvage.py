"""A damaged buffer is set aside under a dated name, and all that can be read of it goes into a fresh one.

Theory of operation. The damaged file is never removed and its content never changed by the salvage: its name changes,
and with it those of its log and index. Scripts may be writing at that moment. So first a mark is put beside it
(`buffer.db-salvage`), with which nobody opens the buffer; then the salvage waits for those who are opening or writing,
and keeps all others out until it has ended (`opening`): what they wrote before is read. Whoever comes later finds that
his file is not the buffer any more (`Committer._begin`, and `_insert_alone`, which finds out after its row is there,
and writes it into the fresh one too). The fresh buffer is made whole under another name and takes the buffer's name
last; then the mark goes. A salvage that is interrupted at any point goes on from the mark when it is run again.

What must always hold: whatever was readable is in the fresh buffer; what was not is counted, and its id told where an
index still knows it. A cached call whose record says that it ended is not made again. The fresh buffer has an
incarnation of its own, by which central learns that the file was replaced.
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
"""The file itself last: once it has its new name, all have."""


def salvage(path: Path, now: datetime) -> Salvaged:
    """Set the buffer aside and put all that can be read of it into a fresh one. The caller holds the agent's lock.

    Raises NotFound if there is no buffer, Unavailable if a script does not let go of it or the disk will not.
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
            # Whoever may use the buffer may use the fresh one.
            shutil.copymode(aside, fresh)
            os.replace(fresh, path)
            _sync_folder(path.parent)
            mark.unlink()
            _sync_folder(path.parent)
    except apsw.Error as error:
        raise storage_error(error, path) from error
    except OSError as error:
        raise Unavailable("buffer.io", f"{path} cannot be salvaged: {error}", hint="then run it again") from error
    return result


def _mark(path: Path, mark: Path, now: datetime) -> Path:
    """Put the mark beside the buffer, or read that of a salvage which was interrupted; the name that the file gets."""
    try:
        return path.with_name(mark.read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        if not path.exists() and not log_of(path).exists():
            raise NotFound("buffer.none", f"there is no buffer {path}") from None
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
        # Log and index go with the last process that closes the file.
        with suppress(FileNotFoundError):
            os.rename(_beside(path, suffix), _beside(aside, suffix))
    # The file itself may have been lost while its log was not; much of it is in the log.
    aside.touch(mode=0o600)
    _sync_folder(path.parent)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # Windows knows no such thing.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
