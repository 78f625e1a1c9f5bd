"""A damaged buffer is set aside under a dated name, and all that can be read of it goes into a fresh one.

Theory of operation. The damaged file is never written to and never removed: its name changes, and with it those of its
log and index. Scripts may be writing at that moment. So first a mark is put beside it (`buffer.db-salvage`), with which
nobody opens the buffer; then the files get their new names; then the salvage waits its turn to write, once, behind
whoever is writing still. Whoever comes later finds that his file is not the buffer any more (`Committer._begin`, and
`_insert_alone`, which finds out after its row is there, and writes it into the fresh one too); what came before is
read. The fresh buffer is made whole under another name and takes the buffer's name last; then the mark goes. A salvage
that is interrupted at any point goes on from the mark when it is run again.

What must always hold: whatever was readable is in the fresh buffer; what was not is counted, and its id told where an
index still knows it. A cached call whose record says that it ended is not made again. The fresh buffer has an
incarnation of its own, by which central learns that the file was replaced.
"""

import os
import shutil
from datetime import datetime
from pathlib import Path

import apsw

from fieldpost.core.errors import NotFound, Unavailable
from fieldpost.site.care.refill import Salvaged, refill
from fieldpost.site.connection import open_existing, salvage_mark, storage_error

_SUFFIXES = ("-shm", "-wal", "")
"""The file itself last: once it has its new name, all have."""


def salvage(path: Path, now: datetime) -> Salvaged:
    """Set the buffer aside and put all that can be read of it into a fresh one. The caller holds the agent's lock.

    Raises NotFound if there is no buffer, Unavailable if a script does not let go of it or the disk will not.
    """
    mark = salvage_mark(path)
    fresh = path.with_name(f"{path.name}-fresh")
    try:
        aside = _set_aside(path, mark, now)
        _wait_for_writers(aside)
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


def _set_aside(path: Path, mark: Path, now: datetime) -> Path:
    try:
        aside = path.with_name(mark.read_text(encoding="utf-8").strip())
    except FileNotFoundError:
        if not path.exists():
            raise NotFound("buffer.none", f"there is no buffer {path}") from None
        aside = path.with_name(f"{path.name}.damaged-{now:%Y%m%dT%H%M%S%fZ}")
        with mark.open("x", encoding="utf-8") as file:
            file.write(f"{aside.name}\n")
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(path.parent)
    if not aside.exists():
        for suffix in _SUFFIXES:
            if _beside(path, suffix).exists():
                os.rename(_beside(path, suffix), _beside(aside, suffix))
        _sync_folder(path.parent)
    return aside


def _wait_for_writers(aside: Path) -> None:
    """Take a turn at writing, so that whoever was writing when the file got its new name has ended."""
    connection = open_existing(aside)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except apsw.BusyError:
        raise Unavailable(
            "buffer.busy",
            f"a script does not let go of {aside}",
            hint="stop the scripts that use this site, then run the salvage again",
        ) from None
    except apsw.Error:
        pass  # Too damaged for SQLite: nobody can be writing it either.
    finally:
        connection.close(True)


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
