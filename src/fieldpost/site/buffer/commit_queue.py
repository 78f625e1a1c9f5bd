"""Writes that wait for a commit, and the leader that commits them all.

Theory of operation. Threads that write at the same time queue their writes; one of them, the leader, takes the whole
queue into a batch and commits it. One attribute names the leader: a write, or any object that represents a caller
without one. After the commit the leader appoints the first write in the queue as its successor, or nobody if the queue
is empty. A waiting thread is woken when its write is done or when it leads. A superfluous wake-up does no harm, since
the thread checks the reason.

Invariant: if any write waits, there is a leader that knows about it. An interrupt (KeyboardInterrupt, SystemExit, any
exception raised into a thread) may strike between any two steps, including the hand-over. So each step leaves a state
from which `leave` can repeat all of them, and callers run under `except BaseException: leave`. Writes of an interrupted
leader that are not committed return to the queue for the next leader: an interrupt ends only its own caller's write.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import apsw

from fieldpost.core.errors import Unavailable
from fieldpost.site.buffer.rows import Rows

T = TypeVar("T")

ROWS_PER_STATEMENT_MAX = 32


class Write(Generic[T]):
    """One caller's part of a batch: applied whole or not at all."""

    __slots__ = ("error", "is_done", "is_one_statement", "result", "row", "rows", "woken", "work")

    def __init__(
        self,
        work: Callable[[apsw.Cursor], T] | None,
        is_one_statement: bool,
        rows: Rows | None = None,
        row: tuple[Any, ...] = (),
    ) -> None:
        self.work = work
        self.is_one_statement = is_one_statement
        self.rows = rows
        self.row = row
        self.woken = threading.Lock()
        """The caller waits by acquiring it a second time; releasing it wakes the caller."""
        self.is_done = False
        """Whether its result or error is final."""
        self.result: T | None = None
        self.error: Exception | None = None

    def apply(self, cursor: apsw.Cursor) -> None:
        """Run the work. Its own failure is kept for its caller; a failure of the file is raised and ends the batch."""
        if not self.is_one_statement:
            cursor.execute("SAVEPOINT turn")
        try:
            if self.rows is not None:
                self.rows.insert(cursor, (self.row,))
            elif self.work is not None:
                self.result = self.work(cursor)
        except Exception as error:
            if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
                raise
            self.error = error
            if not self.is_one_statement:
                cursor.execute("ROLLBACK TO turn")
        if not self.is_one_statement:
            cursor.execute("RELEASE turn")

    def wake(self) -> None:
        """Wake the caller if it waits."""
        if self.woken.locked():
            self.woken.release()


class WriteBatch:
    """The writes that one leader commits together."""

    __slots__ = ("is_over", "writes")

    def __init__(self) -> None:
        self.writes: list[Write[Any]] = []
        self.is_over = False
        """Whether it is committed, or has failed and each write has its error. Until then the file is unchanged."""

    def fail(self, error: Callable[[], Exception]) -> None:
        """Give each write that has not failed yet a separate error; the file is unchanged."""
        for write in self.writes:
            write.error = write.error or error()
        self.is_over = True

    def finish(self) -> None:
        """Mark all writes as done and wake their callers. May be repeated."""
        for write in self.writes:
            write.is_done = True
            if write.woken.locked():
                write.woken.release()


class CommitQueue:
    """The queue of writes to one file in one process, and its leader."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s
        self._mutex = threading.Lock()
        self._queue: deque[Write[Any]] = deque()
        self._leader: object | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether writes are queued that are in no batch yet."""
        return bool(self._queue)

    def take(self, by: object) -> bool:
        """Become leader without a write, unless another caller leads."""
        with self._mutex:
            if self._leader is not None:
                return False
            self._leader = by
            return True

    def join(self, write: Write[Any]) -> None:
        """Queue the write. Returns when it is done, or when it leads and its caller must commit the queue.

        Raises Unavailable if no leader takes it in time; it is then not applied.
        """
        with self._mutex:
            self._queue.append(write)
            if self._leader is None:
                self._leader = write
                return
            write.woken.acquire()
        while not write.is_done and self._leader is not write:
            if not write.woken.acquire(timeout=self._patience_s):
                with self._mutex:
                    if write in self._queue and self._leader is not write:
                        raise Unavailable("buffer.busy", f"{self._path} is kept busy by another thread")

    def absorb(self, batch: WriteBatch) -> None:
        """Move all queued writes into the leader's batch."""
        with self._mutex:
            batch.writes += self._queue
            self._queue.clear()

    def pass_on(self, by: object) -> None:
        """Appoint the next leader, if `by` leads."""
        if self._leader is by:
            with self._mutex:
                self._appoint()

    def leave(self, by: object, batch: WriteBatch | None = None) -> None:
        """Clean up after an interrupt: withdraw `by`, finish its batch or return it to the queue, pass the lead on."""
        with self._mutex:
            taken = batch.writes if batch is not None else []
            self._queue = deque(write for write in self._queue if write is not by and write not in taken)
            if batch is not None and not batch.is_over:
                for write in reversed(taken):
                    if write is not by:
                        write.error = None
                        self._queue.appendleft(write)
            if self._leader is by:
                self._appoint()
            elif isinstance(self._leader, Write):
                # The interrupt may have struck between appointing this leader and waking it.
                self._leader.wake()
        if batch is not None and batch.is_over:
            batch.finish()

    def _appoint(self) -> None:
        self._leader = successor = self._queue[0] if self._queue else None
        if successor is not None:
            successor.wake()


def apply_all(cursor: apsw.Cursor, writes: Sequence[Write[Any]]) -> None:
    """Apply the writes: plain rows together, other writes one by one."""
    by_table: dict[Rows, list[Write[Any]]] = {}
    for write in writes:
        if write.rows is None:
            write.apply(cursor)
        else:
            by_table.setdefault(write.rows, []).append(write)
    for rows, plain in by_table.items():
        for start in range(0, len(plain), ROWS_PER_STATEMENT_MAX):
            part = plain[start : start + ROWS_PER_STATEMENT_MAX]
            try:
                rows.insert(cursor, [write.row for write in part])
            except apsw.ConstraintError:
                # One of the rows violates a constraint; applied alone, each write gets its own result.
                for write in part:
                    write.apply(cursor)
