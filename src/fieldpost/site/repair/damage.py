"""A quick check for damage of the buffer's file, at the start of the agent."""

from pathlib import Path

import apsw

from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.connection import damaged, emptied, file_size, is_damage, log_of, open_existing
from fieldpost.site.buffer.file_pages import WriteAheadLog, frames_known, is_in_use, judge_log, salts_of

VERIFIED_BYTES_MAX = 64 * 1024**2
"""A file up to this size is checked at each start of the agent, in a fraction of a second; a larger one only by
`fieldpost site doctor`."""


def refuse_damaged(path: Path) -> None:
    """Raise Unavailable with the code `buffer.corrupt` for a damaged buffer.

    SQLite notices a damaged page only when it reads it, and in a damaged log it sees only the part before the damage
    and overwrites the rest. So the check comes before the buffer is opened. It is skipped if this process has the
    buffer open: closing the file by other means than SQLite's would drop SQLite's locks.
    """
    if (
        Committer.is_open(path)
        or not path.exists()
        or path.stat().st_size + (file_size(log_of(path)) or 0) > VERIFIED_BYTES_MAX
    ):
        return
    damage = emptied(path) or damage_of_log(log_of(path)) or _damage_of_pages(path)
    if damage is not None:
        raise damaged(path, damage)


def damage_of_log(log: Path) -> str | None:
    """A description of the damage of the write-ahead log; None if it is intact or in use.

    A log in use cannot be checked: the first process that opens the file lets SQLite read the log up to the damage and
    drop the rest, and a log that is being written is never complete.
    """
    index = log.with_name(log.name.removesuffix("-wal") + "-shm")
    if is_in_use(index):
        return None
    found = judge_log(log)
    return found.damage or _cut_short(log, index, found)


def _cut_short(log: Path, index: Path, found: WriteAheadLog) -> str | None:
    known = frames_known(index, found.salts)
    # A process may have started to write: the log may have grown since it was read, or been reset and shortened.
    again = judge_log(log)
    if known <= again.frames or not again.salts == found.salts == salts_of(log):
        return None
    return f"its write-ahead log is truncated: {known - again.frames} of {known} page images are missing"


def _damage_of_pages(path: Path) -> str | None:
    try:
        connection = open_existing(path)
        try:
            row = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close(True)
    except apsw.Error as error:
        # A file that is merely inaccessible is reported when it is opened next.
        return str(error) if is_damage(error) else None
    return None if row is None or row[0] == "ok" else str(row[0])
