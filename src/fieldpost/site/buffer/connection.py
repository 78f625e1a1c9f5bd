"""Opens the buffer's file with durable commits, and maps SQLite's failures to our errors.

Only apsw may open the file: a second SQLite library in the same process would drop the locks of the first.

The file contains message bodies, so it is created with access for its owner only. Its mode is never changed afterwards:
an administrator may have opened it to a group. SQLite creates the log and its index with the mode of the file.

A new buffer gets its name only when it is complete. So an empty file of that name was truncated, and a log without a
file has lost its file. SQLite would take either for a new database and delete the log, with messages that scripts
believe to be on disk: such a file is refused before SQLite sees it.
"""

import errno
import os
from pathlib import Path

import apsw

from fieldpost.core.errors import ConfigError, FieldpostError, Unavailable
from fieldpost.site.buffer.file_pages import is_log_header_damaged
from fieldpost.site.buffer.reserve import reserve_size
from fieldpost.site.buffer.schema import ensure_schema, refusal_of
from fieldpost.site.config.options import RESERVE_BYTES

SQLITE_MIN = (3, 51, 3)
"""Earlier versions can corrupt a log that several processes write (the WAL-reset bug)."""
BUSY_TIMEOUT_MS = 30_000
LOG_PAGES_MAX = 1_000
"""Below `journal_size_limit`: a log that is truncated at every reset has to grow again, which is slow."""

_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA cache_size=-2048",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=4194304",
)


def connect(path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> apsw.Connection:
    """A connection with durable commits and the current schema. Raises ConfigError or Unavailable."""
    refuse_old_sqlite(apsw.sqlite_lib_version())
    if is_log_header_damaged(log_of(path)):
        # SQLite would take such a log for an empty one and overwrite messages that scripts believe to be on disk.
        raise damaged(path, "the header of its write-ahead log cannot be read")
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
                f"{path} is on a file system that does not support a write-ahead log",
                hint="put the site's folder on a local disk",
            )
        ensure_schema(connection, path)
        # Checked again: the opened file may be one that was being set aside, or its replacement.
        refuse_salvage(path)
    except BaseException as error:
        if connection is not None:
            connection.close(True)
        if isinstance(error, apsw.Error):
            raise storage_error(error, path) from error
        raise
    return connection


def open_existing(path: Path) -> apsw.Connection:
    """A connection for inspection: it creates no file, changes no schema and leaves the log alone."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def is_unreleased_buffer(path: Path) -> bool:
    """Whether the file is a buffer from before the first release, which nothing upgrades."""
    if not path.is_file():
        return False
    connection = open_existing(path)
    try:
        refusal = refusal_of(connection, path)
    except apsw.Error:
        return False
    finally:
        connection.close(True)
    return refusal is not None and refusal.code == "buffer.unreleased"


def emptied(path: Path) -> str | None:
    """A description of how the buffer lost its content; None if the file has content or does not exist yet.

    Checks the log first: a new buffer gets its name before it has a log.
    """
    has_log = bool(file_size(log_of(path)))
    match file_size(path):
        case 0:
            return "the file is empty" + (", but its write-ahead log is not" if has_log else "")
        case None if has_log:
            return "the file is missing, but its write-ahead log exists"
        case _:
            return None


def _make(path: Path) -> None:
    """Create the buffer, readable only by its owner, if it does not exist. Raises Unavailable for an emptied one.

    It is created under another name and closed before it gets its own, because closing a file drops all locks that this
    process has on it. If several processes create it at once, the first one's stays.
    """
    if emptied(path) is not None:
        # A salvage in progress, or one that has just ended, explains it.
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
    """Create the tables. Nobody knows the file yet, so one sync at the end is enough."""
    connection = apsw.Connection(str(beside))
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.pragma("journal_mode", "off")
        ensure_schema(connection, beside)
        # If that fails, `connect` reports it.
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
        # A file system without hard links: two processes at the same moment are not kept apart.
        if not path.exists():
            os.rename(beside, path)


def _log_pages_max(path: Path, page_bytes: int) -> int:
    """The log size at which to checkpoint: before that could need more space than the reserve provides."""
    try:
        return max(64, min(LOG_PAGES_MAX, reserve_size(path.parent, RESERVE_BYTES) // 2 // page_bytes))
    except OSError:
        return LOG_PAGES_MAX


def refuse_read_only(path: Path) -> None:
    """Raise Unavailable for a file that this user can read but not write: sent messages could not be cleared."""
    if path.exists() and not os.access(path, os.W_OK):
        raise storage_error(apsw.ReadOnlyError("this user may only read it"), path)


def refuse_old_sqlite(version: str) -> None:
    """Raise ConfigError for an SQLite that may corrupt a file written by several processes."""
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_MIN:
        needed = ".".join(str(part) for part in SQLITE_MIN)
        raise ConfigError(
            "buffer.old_sqlite",
            f"SQLite {version} may corrupt a file that several processes write; {needed} or later is needed",
            hint="install the apsw wheel, which includes SQLite",
        )


def storage_error(error: apsw.Error, path: Path) -> FieldpostError:
    """The error for a failure of the file; the caller's write is not confirmed, and but for `buffer.io` not stored."""
    if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_SHMSIZE:
        # The index of the log could not grow, which is the first symptom of a full disk.
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
            return Unavailable(
                "buffer.io",
                f"{path} cannot be read or written: {error}",
                hint="check the disk; the message may still be delivered, so send it again with a key only",
            )


def _file_error(error: OSError, path: Path) -> FieldpostError:
    """The error for a failure reported by the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return storage_error(apsw.FullError(), path)
    kind = apsw.IOError if error.errno == errno.EIO else apsw.CantOpenError
    return storage_error(kind(error.strerror or str(error)), path)


def is_damage(error: apsw.Error) -> bool:
    """Whether the error means damage, rather than a file that cannot be accessed."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError)


def damaged(path: Path, how: str) -> Unavailable:
    """The error for a buffer that cannot be read completely."""
    return Unavailable(
        "buffer.corrupt",
        f"{path} is damaged: {how}",
        hint="stop the agent and run `fieldpost site salvage`: it sets the file aside and recovers readable messages",
    )


def log_of(path: Path) -> Path:
    """The write-ahead log beside the file."""
    return path.with_name(f"{path.name}-wal")


def file_size(file: Path) -> int | None:
    """The size of the file; None if it does not exist or cannot be accessed."""
    try:
        return file.stat().st_size
    except OSError:
        return None


def salvage_mark(path: Path) -> Path:
    """The marker file of a salvage in progress; it contains the name under which the damaged file is set aside."""
    return path.with_name(f"{path.name}-salvage")


def refuse_salvage(path: Path) -> None:
    """Raise Unavailable during a salvage: messages in a buffer created meanwhile would be lost."""
    if salvage_mark(path).exists():
        raise Unavailable(
            "buffer.salvaging",
            f"{path} is being salvaged, or a salvage was interrupted",
            hint="if no `fieldpost site salvage` is running, run it again: it resumes where it stopped",
        )
