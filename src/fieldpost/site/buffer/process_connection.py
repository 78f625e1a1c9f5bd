"""The one connection of a process to a buffer file: reading, checkpoints, forks, and replacement of the file.

No connection crosses a fork: SQLite would take the parent's locks for the child's, and the child could go on writing
into a log that the parent has deleted. So the connection is closed before a fork, and parent and child each open a new
one when they next need it.

A salvage replaces the file under the same name while processes have it open. `_identity` is the file that the
connection opened; comparing it with the file that has the name now shows whether the connection is still the buffer's.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakSet

import apsw

from fieldpost.core.errors import Conflict, FieldpostError
from fieldpost.site.buffer.connection import BUSY_TIMEOUT_MS, connect, storage_error
from fieldpost.site.buffer.opening import opening
from fieldpost.site.buffer.schema import newer, schema_version

T = TypeVar("T")

CHECKPOINT_TIMEOUT_MS = 1_000


class ProcessConnection:
    """A connection that opens at first use and again after a fork, a failure or a replacement of the file."""

    def __init__(self, path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._path = path
        self._name = str(path)
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        """For writing. None also during a batch, so that nobody uses it after an interrupt in a transaction."""
        self._identity: tuple[int, int] | None = None
        self._pid = 0
        self._commits = 0
        self._reset()
        _connections.add(self)

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._connection_lock:
            self._disconnect()

    def read(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Run the work outside any batch; it sees only committed data."""
        with self._connection_lock:
            try:
                connection = self._connect()
                cursor = connection.cursor()
                try:
                    return work(cursor)
                finally:
                    # A statement left half read would hold its snapshot, and with it the log, forever. An open
                    # transaction would absorb later writes and never commit them.
                    cursor.close(True)
                    if connection.in_transaction:
                        self._disconnect()
            except apsw.Error as error:
                raise self._fail(error) from error

    def change_mark(self) -> tuple[int, int]:
        """A value that changes with every commit of this or any other process."""
        with self._connection_lock:
            try:
                return cast(int, self._connect().pragma("data_version")), self._commits
            except apsw.Error as error:
                raise self._fail(error) from error

    def checkpoint(self) -> None:
        """Move the log into the file and empty it, as far as other users and the disk allow."""
        with self._connection_lock:
            try:
                connection = self._connect()
                connection.set_busy_timeout(CHECKPOINT_TIMEOUT_MS)
                try:
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                finally:
                    connection.set_busy_timeout(self._busy_timeout_ms)
            except apsw.Error as error:
                self._fail(error)

    def vacuum(self) -> bool:
        """Rewrite the file without its free pages; whether that succeeded, in particular whether the disk had space."""
        with self._connection_lock:
            try:
                self._connect().execute("VACUUM")
                is_done = True
            except apsw.Error as error:
                self._fail(error)
                is_done = False
        self.checkpoint()
        return is_done

    def _connect(self) -> apsw.Connection:
        if self._connection is not None:
            if self._pid != os.getpid():
                raise Conflict(
                    "buffer.forked",
                    "this process was forked without Python's knowledge while the buffer was open",
                    hint="open the site after the fork",
                )
            if not self._connection.in_transaction:
                return self._connection
            self._disconnect()
        with opening(self._path):
            self._connection = connect(self._path, self._busy_timeout_ms)
            self._identity = identity_of(self._name)
        self._pid = os.getpid()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            try:
                connection.close(True)
            except apsw.Error:
                _abandoned.append(connection)

    def _fail(self, error: apsw.Error) -> FieldpostError:
        """The error to raise; a connection that cannot be trusted any more is closed."""
        if isinstance(error, apsw.IOError | apsw.CorruptError | apsw.NotADBError):
            # After a failed sync the content of the file is unknown; a new connection reads it again.
            self._disconnect()
        elif isinstance(error, apsw.SQLError | apsw.SchemaChangeError) and (version := self._newer_version()):
            return newer(self._path, version)
        return storage_error(error, self._path)

    def _refuse_newer(self) -> None:
        """Raise ConfigError if the file was upgraded while this process had it open, and its constraints changed."""
        with self._connection_lock:
            if version := self._newer_version():
                raise newer(self._path, version)

    def _newer_version(self) -> int | None:
        # Checked only after a failure: upgrades are rare, and `send` has no time for it.
        if self._connection is None:
            return None
        try:
            version = cast(int, self._connection.pragma("user_version"))
        except apsw.Error:
            return None
        return version if version > schema_version() else None

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._connection_lock = threading.Lock()

    def _before_fork(self) -> None:
        self._connection_lock.acquire()
        self._disconnect()

    def _after_fork_in_parent(self) -> None:
        self._connection_lock.release()


def identity_of(path: str) -> tuple[int, int] | None:
    """Device and inode of the file that has this name now; None if it does not exist."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


_connections: "WeakSet[ProcessConnection]" = WeakSet()
_abandoned: list[apsw.Connection] = []
"""Connections that could not be closed: kept, because the garbage collector would close them again."""
_forking: list[ProcessConnection] = []


def _before_fork() -> None:
    _forking[:] = _connections
    for connection in _forking:
        connection._before_fork()


def _after_fork_in_parent() -> None:
    for connection in _forking:
        connection._after_fork_in_parent()
    _forking.clear()


def _after_fork_in_child() -> None:
    _forking.clear()
    for connection in list(_connections):
        connection._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
