"""One connection per process to the site's buffer, and the one committer whose batches its threads join.

Theory of operation. A durable commit costs one fsync, whatever is in it, so writes that wait together commit together.
There is no committer thread: the first caller to find nobody committing leads (`lead`). It begins, applies what is
queued and what is queued meanwhile, commits once, passes the lead on and wakes those whose turns it took. A lone caller
therefore commits in its own thread and pays no thread switch; its row is one statement that is its own transaction, as
long as nobody else comes (`_insert_alone`).

What must always hold: `write()` returns only after the COMMIT that holds its turn; a turn is applied whole or not at
all, and its own failure (a constraint, a bug) fails it alone; a failure of the file (full, I/O, busy) fails every turn
of the batch, and nothing of it stays. An interrupt of the thread that leads ends its own call only: whether that was
committed he cannot know, the others are told. Processes take turns by BEGIN IMMEDIATE.

No connection crosses a fork: SQLite would take the parent's locks for the child's own, and the child could go on
writing into a log that the parent has deleted. So the connection is closed before a fork, and parent and child each
open their own when they next need one.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from weakref import WeakSet

import apsw

from fieldpost.core.errors import Conflict, FieldpostError
from fieldpost.site.buffer.commit_queue import CommitQueue
from fieldpost.site.buffer.connection import BUSY_TIMEOUT_MS, connect, storage_error
from fieldpost.site.buffer.opening import opening
from fieldpost.site.buffer.rows import Rows
from fieldpost.site.buffer.schema import newer, schema_version
from fieldpost.site.buffer.writes import Write, WriteBatch, apply_all

T = TypeVar("T")

CHECKPOINT_TIMEOUT_MS = 1_000
_TWICE = (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE)
BATCH_TURNS_MAX = 512
"""A batch stops absorbing here, so that its first turn is not kept waiting for ever."""


class Committer:
    """The process's way into one buffer file. Get it by `Committer.shared`; each `shared` needs its `release`."""

    def __init__(self, path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self._path = path
        self._name = str(path)
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: apsw.Connection | None = None
        self._cursor: apsw.Cursor | None = None
        """None also while a batch is under way: of a connection that an interrupt left in one, nobody uses it."""
        self._identity: tuple[int, int] | None = None
        self._pid = 0
        self._users = 0
        self._commits = 0
        self._is_alone = True
        """Whether the last batch had one turn, and nobody came meanwhile."""
        self._reset()
        _everyone.add(self)

    @classmethod
    def shared(cls, path: Path) -> "Committer":
        """This process's committer for the file, opened if need be, so that its threads share one connection."""
        key = str(path.resolve())
        with _registry_lock:
            committer = _registry.get(key)
            if committer is None:
                committer = _registry[key] = cls(path)
            committer._users += 1
        try:
            committer.read(lambda _: None)
        except BaseException:
            committer.release()
            raise
        return committer

    @classmethod
    def is_open(cls, path: Path) -> bool:
        """Whether this process uses the file at present."""
        with _registry_lock:
            return str(path.resolve()) in _registry

    def release(self) -> None:
        """Give it back; the last user's release closes the connection."""
        with _registry_lock:
            self._users -= 1
            if self._users > 0:
                return
            for key in [key for key, committer in _registry.items() if committer is self]:
                del _registry[key]
        self.close()

    def close(self) -> None:
        """Close the connection; the next use would open it again."""
        with self._connection_lock:
            self._disconnect()

    def write(self, work: "Callable[[apsw.Cursor], T]", *, is_one_statement: bool = False) -> T:
        """Run the work in a transaction and return its result after the COMMIT.

        `is_one_statement` spares the savepoint: SQLite itself undoes a single statement that fails.
        """
        try:
            return self._wait_for(Write(work, is_one_statement))
        except apsw.ConstraintError:
            self._refuse_newer()
            raise

    def insert(self, rows: Rows, row: tuple[Any, ...]) -> None:
        """Insert one row and return after the COMMIT. Rows that wait together go in by one statement."""
        stands: bool | None = None
        try:
            if self._is_alone:
                stands = self._insert_alone(rows, row)
            if not stands:
                self._wait_for(Write(None, True, rows, row))
        except apsw.ConstraintError as error:
            # The salvage that took the file away may have taken the row along.
            if stands is False and cast(Any, error).extendedresult in _TWICE:
                return
            self._refuse_newer()
            raise

    def read(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Run the work outside any batch; it sees only what is committed."""
        with self._connection_lock:
            try:
                connection = self._connect()
                cursor = connection.cursor()
                try:
                    return work(cursor)
                finally:
                    # A statement left half read would hold its snapshot, and with it the log, for ever. A transaction
                    # left open would take in what is added later, and never commit it.
                    cursor.close(True)
                    if connection.in_transaction:
                        self._disconnect()
            except apsw.Error as error:
                raise self._fail(error) from error

    def change_mark(self) -> tuple[int, int]:
        """Differs from an earlier one when this or any other process has committed since."""
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

    def _wait_for(self, turn: Write[T]) -> T:
        """Queue the turn; lead if nobody does; return its result when it is committed."""
        batch: WriteBatch | None = None
        try:
            self._lead.join(turn)
            if not turn.is_done:
                batch = WriteBatch()
                with self._connection_lock:
                    self._commit(batch)
                self._lead.pass_on(turn)
                batch.finish()
        except BaseException:
            self._lead.leave(turn, batch)
            raise
        if turn.error is not None:
            raise turn.error
        return turn.result  # type: ignore[return-value]  # A turn that did not fail has its result.

    def _insert_alone(self, rows: Rows, row: tuple[Any, ...]) -> bool | None:
        """Commit the row by itself: None if that was not possible, False if it went into a file that a salvage took.

        The statement is a transaction of its own, with BEGIN and COMMIT spared. Whether the file still has the buffer's
        name is therefore looked at after the commit. If it has, a salvage can only come later, and reads the row; if
        not, it may have read the file before, so the row belongs into the new one too, unless it is there.
        """
        lone = object()
        try:
            if not self._lead.take(lone):
                return None
            with self._connection_lock:
                stands = self._insert_at_once(rows, row)
            if self._lead.is_awaited:
                self._is_alone = False
            self._lead.pass_on(lone)
        except BaseException:
            self._lead.leave(lone)
            raise
        return stands

    def _insert_at_once(self, rows: Rows, row: tuple[Any, ...]) -> bool | None:
        if self._cursor is None or self._pid != os.getpid():
            self._cursor = self._connect().cursor()
        try:
            rows.insert(self._cursor, (row,))
        except apsw.Error as error:
            if self._identity != _identity(self._name):
                # Perhaps it is the damage of a file that is the buffer no more.
                self._disconnect()
                return None
            raise error if isinstance(error, apsw.ConstraintError) else self._fail(error) from error
        self._commits += 1
        if self._identity == _identity(self._name):
            return True
        self._disconnect()
        return False

    def _commit(self, batch: WriteBatch) -> None:
        """Apply what is queued and what is queued meanwhile, and commit it. Each turn then has a result or an error."""
        is_begun = False
        done = 0
        turns = batch.turns
        try:
            self._lead.absorb(batch)
            cursor = self._begin()
            is_begun = True
            while done < BATCH_TURNS_MAX:
                if self._lead.is_awaited:
                    self._lead.absorb(batch)
                if len(turns) == done + 1:
                    turns[done].apply(cursor)
                elif len(turns) > done:
                    apply_all(cursor, turns[done:])
                else:
                    break
                done = len(turns)
            cursor.execute("COMMIT")
            batch.is_over = True
            self._cursor = cursor
            self._commits += 1
            self._is_alone = done == 1 and not self._lead.is_awaited
        except apsw.Error as failure:
            error = failure
            self._roll_back()
            batch.fail(lambda: self._fail(error))
        except FieldpostError as failure:
            refusal = failure
            batch.fail(lambda: refusal)
        except BaseException:
            # An interrupt may strike just after the COMMIT: then there is no transaction any more.
            if is_begun and self._connection is not None and not self._connection.in_transaction:
                batch.is_over = True
            self._disconnect()
            raise

    def _begin(self) -> apsw.Cursor:
        """A transaction in the file that has the buffer's name at this moment.

        A salvage keeps writers out while it gives the file another name. So with the right to write in hand we look
        whether it is still the buffer, and open the new one if not.
        """
        while True:
            cursor, self._cursor = self._cursor, None
            if cursor is None or self._pid != os.getpid():
                cursor = self._connect().cursor()
            cursor.execute("BEGIN IMMEDIATE")
            if self._identity == _identity(self._name):
                return cursor
            cursor.execute("ROLLBACK")
            self._disconnect()

    def _roll_back(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except apsw.Error:
                self._disconnect()

    def _fail(self, error: apsw.Error) -> FieldpostError:
        if isinstance(error, apsw.IOError | apsw.CorruptError | apsw.NotADBError):
            # After a failed sync nobody knows what the file holds; a fresh connection reads it anew.
            self._disconnect()
        elif isinstance(error, apsw.SQLError | apsw.SchemaChangeError) and (version := self._newer_version()):
            return newer(self._path, version)
        return storage_error(error, self._path)

    def _refuse_newer(self) -> None:
        """Raise ConfigError if the file was upgraded while we had it open: then its rules are not those we know."""
        with self._connection_lock:
            if version := self._newer_version():
                raise newer(self._path, version)

    def _newer_version(self) -> int | None:
        # Asked only when something has failed: an upgrade is rare, and a `send` has no time for it.
        if self._connection is None:
            return None
        try:
            version = cast(int, self._connection.pragma("user_version"))
        except apsw.Error:
            return None
        return version if version > schema_version() else None

    def _connect(self) -> apsw.Connection:
        if self._connection is not None:
            if self._pid != os.getpid():
                raise Conflict(
                    "buffer.forked",
                    "this process was forked behind Python's back while the buffer was open",
                    hint="open the site after the fork",
                )
            if not self._connection.in_transaction:
                return self._connection
            self._disconnect()
        with opening(self._path):
            self._connection = connect(self._path, self._busy_timeout_ms)
            self._identity = _identity(self._name)
        self._pid = os.getpid()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            try:
                connection.close(True)
            except apsw.Error:
                _abandoned.append(connection)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._connection_lock = threading.Lock()
        self._lead = CommitQueue(self._path, self._busy_timeout_ms / 500)

    def _before_fork(self) -> None:
        self._connection_lock.acquire()
        self._disconnect()

    def _after_fork_in_parent(self) -> None:
        self._connection_lock.release()


def _identity(path: str) -> tuple[int, int] | None:
    """Which file has this name now; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


_everyone: "WeakSet[Committer]" = WeakSet()
_registry: dict[str, Committer] = {}
_registry_lock = threading.Lock()
_abandoned: list[apsw.Connection] = []
"""Connections that would not close: kept, because their end by the garbage collector would close them again."""


_forking: list[Committer] = []


def _before_fork() -> None:
    _registry_lock.acquire()
    _forking[:] = _everyone
    for committer in _forking:
        committer._before_fork()


def _after_fork_in_parent() -> None:
    for committer in _forking:
        committer._after_fork_in_parent()
    _forking.clear()
    _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock  # noqa: PLW0603
    _registry_lock = threading.Lock()
    _forking.clear()
    for committer in list(_everyone):
        committer._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
