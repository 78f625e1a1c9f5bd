"""Group commit: the writes of a process's threads share commits.

Theory of operation. A durable commit costs one fsync, regardless of its size, so writes that wait together commit
together. There is no committer thread: the first caller that finds no leader leads (`commit_queue`). It begins a
transaction, applies the queued writes and those queued meanwhile, commits once, passes the lead on and wakes the
callers of the writes it took. A lone caller therefore commits in its own thread without a thread switch; as long as no
other caller comes, its row is a single statement that is its own transaction (`_insert_alone`).

Invariants: `write()` returns only after the COMMIT that holds its write. A write is applied whole or not at all. Its
own failure (a constraint, a bug) fails it alone; a failure of the file (full, I/O, busy) fails every write of the batch
and leaves none of them. An interrupt of the leader's thread ends only its own call, whose outcome is then unknown; the
others get their results. Processes take turns by BEGIN IMMEDIATE.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from fieldpost.core.errors import FieldpostError, Unavailable
from fieldpost.file_lock import wait_until
from fieldpost.site.buffer.commit_queue import CommitQueue, Write, WriteBatch, apply_all
from fieldpost.site.buffer.connection import BUSY_TIMEOUT_MS
from fieldpost.site.buffer.process_connection import ProcessConnection, identity_of
from fieldpost.site.buffer.rows import Rows

T = TypeVar("T")

_DUPLICATE = (apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE)
BATCH_WRITES_MAX = 512
"""A batch stops absorbing here, so that its first write does not wait forever."""


class Committer(ProcessConnection):
    """A process's access to one buffer file. Get it by `Committer.shared`; each `shared` needs a `release`."""

    _users = 0
    _is_alone = True
    """Whether the last batch had one write and no other came meanwhile."""

    @classmethod
    def shared(cls, path: Path) -> "Committer":
        """This process's committer for the file, opened if necessary; all threads share its connection."""
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
        """Undo one `shared`; the last one closes the connection."""
        with _registry_lock:
            self._users -= 1
            if self._users > 0:
                return
            for key in [key for key, committer in _registry.items() if committer is self]:
                del _registry[key]
        self.close()

    def write(self, work: "Callable[[apsw.Cursor], T]", *, is_one_statement: bool = False) -> T:
        """Run the work in a transaction and return its result after the COMMIT.

        `is_one_statement` saves the savepoint: SQLite itself undoes a single statement that fails.
        """
        try:
            return self._wait_for(Write(work, is_one_statement))
        except apsw.ConstraintError:
            self._refuse_newer()
            raise

    def insert(self, rows: Rows, row: tuple[Any, ...]) -> None:
        """Insert one row and return after the COMMIT. Rows that wait together go in by one statement."""
        is_stored: bool | None = None
        try:
            if self._is_alone:
                is_stored = self._insert_alone(rows, row)
            if is_stored is False and wait_until(lambda: self._insert_again(rows, row), BUSY_TIMEOUT_MS / 1000):
                return
            if not is_stored:
                self._wait_for(Write(None, True, rows, row))
        except apsw.ConstraintError as error:
            # The salvage that replaced the file may have copied the row.
            if is_stored is False and cast(Any, error).extendedresult in _DUPLICATE:
                return
            self._refuse_newer()
            raise

    def _insert_again(self, rows: Rows, row: tuple[Any, ...]) -> bool:
        """Insert a row of the replaced file into the new one; False while the salvage runs, which may copy the row."""
        try:
            self._wait_for(Write(None, True, rows, row))
        except Unavailable as error:
            if error.code != "buffer.salvaging":
                raise
            return False
        return True

    def _wait_for(self, write: Write[T]) -> T:
        """Queue the write; lead if nobody else does; return the result when it is committed."""
        batch: WriteBatch | None = None
        try:
            self._queue.join(write)
            if not write.is_done:
                batch = WriteBatch()
                with self._connection_lock:
                    self._commit(batch)
                self._queue.pass_on(write)
                batch.finish()
        except BaseException:
            self._queue.leave(write, batch)
            raise
        if write.error is not None:
            raise write.error
        return write.result  # type: ignore[return-value]  # A write that did not fail has its result.

    def _insert_alone(self, rows: Rows, row: tuple[Any, ...]) -> bool | None:
        """Commit the row without a batch: None if that was not possible, False if the file was replaced meanwhile.

        The statement is its own transaction, which saves BEGIN and COMMIT. So the check whether the file still has the
        buffer's name comes after the commit. If it has, a salvage can only come later, and reads the row. If not, the
        salvage may have read the file before, and the row must go into the new file too, unless it is there.
        """
        lone = object()
        try:
            if not self._queue.take(lone):
                return None
            with self._connection_lock:
                is_stored = self._insert_at_once(rows, row)
            if self._queue.has_waiting:
                self._is_alone = False
            self._queue.pass_on(lone)
        except BaseException:
            self._queue.leave(lone)
            raise
        return is_stored

    def _insert_at_once(self, rows: Rows, row: tuple[Any, ...]) -> bool | None:
        if self._cursor is None or self._pid != os.getpid():
            self._cursor = self._connect().cursor()
        try:
            rows.insert(self._cursor, (row,))
        except apsw.Error as error:
            if self._identity != identity_of(self._name):
                # The error may be that of a file which is not the buffer any more.
                self._disconnect()
                return None
            raise error if isinstance(error, apsw.ConstraintError) else self._fail(error) from error
        self._commits += 1
        if self._identity == identity_of(self._name):
            return True
        self._disconnect()
        return False

    def _commit(self, batch: WriteBatch) -> None:
        """Apply and commit the queued writes and those queued meanwhile. Each write then has a result or an error."""
        has_begun = False
        done = 0
        writes = batch.writes
        try:
            self._queue.absorb(batch)
            cursor = self._begin()
            has_begun = True
            while done < BATCH_WRITES_MAX:
                if self._queue.has_waiting:
                    self._queue.absorb(batch)
                if len(writes) == done + 1:
                    writes[done].apply(cursor)
                elif len(writes) > done:
                    apply_all(cursor, writes[done:])
                else:
                    break
                done = len(writes)
            cursor.execute("COMMIT")
            batch.is_over = True
            self._cursor = cursor
            self._commits += 1
            self._is_alone = done == 1 and not self._queue.has_waiting
        except apsw.Error as failure:
            error = failure
            self._roll_back()
            batch.fail(lambda: self._fail(error))
        except FieldpostError as failure:
            refusal = failure
            batch.fail(lambda: refusal)
        except BaseException:
            # An interrupt may strike just after the COMMIT: then the transaction has ended.
            if has_begun and self._connection is not None and not self._connection.in_transaction:
                batch.is_over = True
            self._disconnect()
            raise

    def _begin(self) -> apsw.Cursor:
        """A transaction in the file that has the buffer's name at this moment.

        A salvage keeps writers out while it renames the file. So once the write lock is held, check that the file is
        still the buffer, and open the new one if not.
        """
        while True:
            cursor, self._cursor = self._cursor, None
            if cursor is None or self._pid != os.getpid():
                cursor = self._connect().cursor()
            cursor.execute("BEGIN IMMEDIATE")
            if self._identity == identity_of(self._name):
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

    def _reset(self) -> None:
        super()._reset()
        self._queue = CommitQueue(self._path, self._busy_timeout_ms / 500)


_registry: dict[str, Committer] = {}
_registry_lock = threading.Lock()

if hasattr(os, "register_at_fork"):
    # Taken before the locks of the connections, in the order in which `shared` takes them. The child resets it, as the
    # standard library does: on some systems a release could wait for a thread that the child does not have.
    os.register_at_fork(
        before=_registry_lock.acquire,
        after_in_parent=_registry_lock.release,
        after_in_child=_registry_lock._at_fork_reinit,  # type: ignore[attr-defined]
    )
