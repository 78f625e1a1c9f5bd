"""A connection to the site's buffer on which a commit is durable, and what its failures mean.

Only apsw ever touches the file: a second SQLite library in the same process would drop the first one's locks.

The file holds bodies, so it is made for its owner alone. Its mode is never changed afterwards: whoever opened it to a
group meant to. SQLite makes the log and its index with the mode of the file.

A buffer gets its name when it is whole. So a file of that name which is empty was emptied, and a log beside no file has
lost its file. SQLite takes either for a new database and removes the log, with all that scripts were told is on disk:
such a file is refused before SQLite sees it.
"""

import errno
import os
from pathlib import Path

import apsw

from fieldpost.core.errors import ConfigError, FieldpostError, Unavailable
from fieldpost.site.buffer.file_pages import is_log_header_damaged
from fieldpost.site.buffer.reserve import reserve_size
from fieldpost.site.buffer.schema import ensure_schema
from fieldpost.site.config.options import RESERVE_BYTES

SQLITE_MIN = (3, 51, 3)
"""Earlier ones can corrupt a log that several processes write (the WAL-reset bug)."""
BUSY_TIMEOUT_MS = 30_000
LOG_PAGES_MAX = 1_000
"""Less than `journal_size_limit` holds: a log that is cut each time it begins anew has to grow again, which is slow."""

_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA cache_size=-2048",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=4194304",
)


def connect(path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> apsw.Connection:
    """A connection on which a commit is durable, with the schema in place; typed errors otherwise."""
    refuse_old_sqlite(apsw.sqlite_lib_version())
    if is_log_header_damaged(log_of(path)):
        # SQLite would take such a log for an empty one and write over what scripts were told is on disk.
        raise damaged(path, "the head of its write-ahead log is not readable")
    refuse_salvage(path)
    connection: apsw.Connection | None = None
    try:
        _make(path)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(busy_timeout_ms)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        connection.wal_autocheckpoint(_log_pages_max(path, connection.pragma("page_size")))
        if connection.pragma("journal_mode") != "wal" and connection.pragma("journal_mode", "wal") != "wal":
            raise ConfigError(
                "buffer.no_wal",
                f"{path} cannot use a write-ahead log there",
                hint="put the site's folder on a local disk",
            )
        ensure_schema(connection, path)
        # Again: what was opened may be a file that was being set aside, or the one that was then made in its place.
        refuse_salvage(path)
    except BaseException as error:
        if connection is not None:
            connection.close(True)
        if isinstance(error, apsw.Error):
            raise storage_error(error, path) from error
        raise
    return connection


def open_existing(path: Path) -> apsw.Connection:
    """A connection to look by: it makes no file, brings no schema and leaves the log where it is."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def emptied(path: Path) -> str | None:
    """What happened to a buffer of which nothing is left but perhaps its log, in words; None if nothing did.

    The log is looked at first: whoever makes a buffer gives the file its name before there is a log.
    """
    has_log = bool(_size(log_of(path)))
    match _size(path):
        case 0:
            return "it is empty" + (", but for its write-ahead log" if has_log else "")
        case None if has_log:
            return "the file is gone, and its write-ahead log is not"
        case _:
            return None


def _make(path: Path) -> None:
    """Make the buffer, for its owner alone, if it is not there. Raises Unavailable for one that was emptied.

    It is made under another name, and closed before it gets its own: closing a file drops all locks that this process
    has on it. Of several who make it at once the first one's stays.
    """
    if emptied(path) is not None:
        # A salvage that is under way explains it, and so does one that has ended meanwhile.
        refuse_salvage(path)
        if (how := emptied(path)) is not None:
            raise damaged(path, how)
    if path.exists():
        return
    beside = path.with_name(f"{path.name}-new-{os.urandom(4).hex()}")
    try:
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            _fill_new(beside)
            refuse_salvage(path)
            _give_name(beside, path)
        finally:
            for suffix in ("-wal", "-shm", ""):
                beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise _file_error(error, path) from error


def _fill_new(beside: Path) -> None:
    """The tables of a buffer that nobody knows of yet: one sync at the end is enough."""
    connection = apsw.Connection(str(beside))
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.pragma("journal_mode", "off")
        ensure_schema(connection, beside)
        # Where that is not possible, whoever opens it says so.
        connection.pragma("journal_mode", "wal")
    finally:
        connection.close(True)
    with beside.open("rb+") as file:
        os.fsync(file.fileno())


def _give_name(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)
    except FileExistsError:
        pass
    except OSError:
        # A file system without links: there two who come at the same moment are not kept apart.
        if not path.exists():
            os.rename(beside, path)


def _log_pages_max(path: Path, page_bytes: int) -> int:
    """When to move the log into the file: before that could take more room than the reserve can give."""
    try:
        return max(64, min(LOG_PAGES_MAX, reserve_size(path.parent, RESERVE_BYTES) // 2 // page_bytes))
    except OSError:
        return LOG_PAGES_MAX


def refuse_read_only(path: Path) -> None:
    """Raise Unavailable for a file that this user may read but not write: what leaves it could not be cleared."""
    if path.exists() and not os.access(path, os.W_OK):
        raise storage_error(apsw.ReadOnlyError("this user may only read it"), path)


def refuse_old_sqlite(version: str) -> None:
    """Raise ConfigError for an SQLite that may corrupt a buffer which several processes write."""
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_MIN:
        needed = ".".join(str(part) for part in SQLITE_MIN)
        raise ConfigError(
            "buffer.old_sqlite",
            f"SQLite {version} may corrupt a file that several processes write; {needed} or later is needed",
            hint="install the apsw wheel, which brings its own SQLite",
        )


def storage_error(error: apsw.Error, path: Path) -> FieldpostError:
    """What a failure of the file means to a caller: nothing of his write is there."""
    if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
        # The index of the log could not grow: on a full disk that is where it shows first.
        error = apsw.FullError(str(error))
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable("buffer.busy", f"{path} is kept busy by another process")
        case apsw.FullError():
            return Unavailable("buffer.full", f"the disk of {path} is full", hint="free some space, then send again")
        case _ if is_damage(error):
            return damaged(path, str(error))
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return Unavailable("buffer.denied", f"{path} cannot be opened for writing: {error}")
        case _:
            return Unavailable("buffer.io", f"{path} cannot be read or written: {error}")


def _file_error(error: OSError, path: Path) -> FieldpostError:
    """The same for what the system says rather than SQLite."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return storage_error(apsw.FullError(), path)
    kind = apsw.IOError if error.errno == errno.EIO else apsw.CantOpenError
    return storage_error(kind(error.strerror or str(error)), path)


def is_damage(error: apsw.Error) -> bool:
    """Whether the file is not what it should be, rather than out of reach."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError)


def damaged(path: Path, how: str) -> Unavailable:
    """The error of a buffer that cannot be read any more, or not wholly."""
    return Unavailable(
        "buffer.corrupt",
        f"{path} is damaged: {how}",
        hint="stop the agent and run `fieldpost site salvage`: it sets the file aside and keeps what can be read",
    )


def log_of(path: Path) -> Path:
    """The write-ahead log beside the file."""
    return path.with_name(f"{path.name}-wal")


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def salvage_mark(path: Path) -> Path:
    """The file that is there while a damaged buffer is being replaced, and tells where it was set aside."""
    return path.with_name(f"{path.name}-salvage")


def refuse_salvage(path: Path) -> None:
    """While a salvage is under way nobody else may make a buffer there: what he puts into it would be lost."""
    if salvage_mark(path).exists():
        raise Unavailable(
            "buffer.salvaging",
            f"{path} is being salvaged, or that was interrupted",
            hint="if no `fieldpost site salvage` is running, run it again: it goes on where it was",
        )
