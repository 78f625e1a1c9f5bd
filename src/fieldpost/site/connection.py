"""A connection to the site's buffer on which a commit is durable, and what its failures mean.

Only apsw ever touches the file: a second SQLite library in the same process would drop the first one's locks.
"""

from importlib.resources import files
from pathlib import Path

import apsw

from fieldpost.core.errors import ConfigError, FieldpostError, Unavailable

SCHEMA_VERSION = 1
SQLITE_MIN = (3, 51, 3)
"""Earlier ones can corrupt a log that several processes write (the WAL-reset bug)."""
BUSY_TIMEOUT_MS = 30_000

_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA cache_size=-2048",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=4194304",
)


def connect(path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> apsw.Connection:
    """A connection on which a commit is durable, with the schema in place; typed errors otherwise."""
    refuse_old_sqlite(apsw.sqlite_lib_version())
    connection: apsw.Connection | None = None
    try:
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(busy_timeout_ms)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        if connection.pragma("journal_mode") != "wal" and connection.pragma("journal_mode", "wal") != "wal":
            raise ConfigError(
                "buffer.no_wal",
                f"{path} cannot use a write-ahead log there",
                hint="put the site's folder on a local disk",
            )
        if connection.pragma("user_version") != SCHEMA_VERSION:
            _bring_schema(connection, path)
    except BaseException as error:
        if connection is not None:
            connection.close(True)
        if isinstance(error, apsw.Error):
            raise storage_error(error, path) from error
        raise
    return connection


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
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable("buffer.busy", f"{path} is kept busy by another process")
        case apsw.FullError():
            return Unavailable("buffer.full", f"the disk of {path} is full", hint="free some space, then send again")
        case apsw.CorruptError() | apsw.NotADBError():
            return Unavailable("buffer.corrupt", f"{path} is damaged: {error}")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return Unavailable("buffer.denied", f"{path} cannot be opened for writing: {error}")
        case _:
            return Unavailable("buffer.io", f"{path} cannot be read or written: {error}")


def _bring_schema(connection: apsw.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    version = connection.pragma("user_version")
    if version == 0:
        connection.execute(files("fieldpost.site").joinpath("schema.sql").read_text(encoding="utf-8"))
        connection.pragma("user_version", SCHEMA_VERSION)
    connection.execute("COMMIT")
    if version > SCHEMA_VERSION:
        raise ConfigError(
            "buffer.newer",
            f"{path} has schema version {version}, this Fieldpost knows up to {SCHEMA_VERSION}",
            hint="use the newer Fieldpost that wrote it",
        )
