"""Whether a buffer's file is damaged, as far as can be told in the time that a start may take."""

from pathlib import Path

import apsw

from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.connection import damaged, emptied, is_damage, log_of, open_existing
from fieldpost.site.buffer.file_pages import WriteAheadLog, frames_known, is_in_use, judge_log, salts_of

VERIFIED_BYTES_MAX = 64 * 1024**2
"""A file up to this size is looked through at each start of the agent, which takes a fraction of a second; a larger
one only by `fieldpost site doctor`."""


def refuse_damaged(path: Path) -> None:
    """Raise Unavailable with the code `buffer.corrupt` for a damaged buffer.

    SQLite itself notices a damaged page only when it meets it, and of a damaged log it sees what precedes the damage
    and writes over the rest. So this comes before the buffer is opened, and is left out if this process has it open
    already: to close a file by other means than SQLite's would drop the locks that it has there.
    """
    if Committer.is_open(path) or not path.exists() or path.stat().st_size + _size(log_of(path)) > VERIFIED_BYTES_MAX:
        return
    damage = emptied(path) or damage_of_log(log_of(path)) or _damage_of_pages(path)
    if damage is not None:
        raise damaged(path, damage)


def damage_of_log(log: Path) -> str | None:
    """What is wrong with the write-ahead log, in words; None if nothing is, or somebody is at work in it.

    Whoever opens the file first has SQLite read the log through, up to a damage; what is behind that is then given up,
    and there is nothing left to find. And a log that is being written cannot be judged: it is never whole.
    """
    index = log.with_name(log.name.removesuffix("-wal") + "-shm")
    if is_in_use(index):
        return None
    found = judge_log(log)
    return found.damage or _cut_short(log, index, found)


def _cut_short(log: Path, index: Path, found: WriteAheadLog) -> str | None:
    known = frames_known(index, found.salts)
    # Somebody may have begun to work: the log may have grown since it was read, or begun anew, which may shorten it.
    again = judge_log(log)
    if known <= again.frames or not again.salts == found.salts == salts_of(log):
        return None
    return f"its write-ahead log was cut short: {known - again.frames} page images of {known} are missing"


def _damage_of_pages(path: Path) -> str | None:
    try:
        connection = open_existing(path)
        try:
            row = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close(True)
    except apsw.Error as error:
        # What is only out of reach is told by whoever opens it next.
        return str(error) if is_damage(error) else None
    return None if row is None or row[0] == "ok" else str(row[0])


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
