"""Who commits for all: threads that write at once stand in a queue, and one of them, the leader, takes it whole.

Theory of operation. One attribute says who leads: a turn, or whatever object stands for a caller who has no turn. The
leader commits, then passes the lead on to the first in the queue (the heir), or frees it if nobody waits. A waiting
thread is woken when its turn is done or when it leads; a wake too many does no harm, since whoever wakes looks why.

What must always hold: if anybody waits, somebody leads who knows it. An interrupt (KeyboardInterrupt, SystemExit, any
exception that is raised into a thread) may strike between any two steps, those that pass the lead on among them. So
each step leaves a state from which `leave` can do all of them again; a caller runs under `except BaseException: leave`.
What an interrupted leader had begun and not committed is queued again for the next one: an interrupt ends the call that
it was meant for, and no other.
"""

import threading
from collections import deque
from pathlib import Path
from typing import Any

from fieldpost.core.errors import Unavailable
from fieldpost.site.buffer.writes import Write, WriteBatch


class CommitQueue:
    """The lead in one process's writing to one file, and the queue of those who wait for it."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s
        self._mutex = threading.Lock()
        self._queue: deque[Write[Any]] = deque()
        self._leader: object | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether turns are queued that nobody has begun."""
        return bool(self._queue)

    def take(self, by: object) -> bool:
        """Lead without a turn, if nobody leads."""
        with self._mutex:
            if self._leader is not None:
                return False
            self._leader = by
            return True

    def join(self, turn: Write[Any]) -> None:
        """Queue the turn; return when it is done, or when it leads and its caller is to commit the queue.

        Raises Unavailable when nobody has begun it for too long; it will then not be done.
        """
        with self._mutex:
            self._queue.append(turn)
            if self._leader is None:
                self._leader = turn
                return
            turn.woken.acquire()
        while not turn.is_done and self._leader is not turn:
            if not turn.woken.acquire(timeout=self._patience_s):
                with self._mutex:
                    if turn in self._queue and self._leader is not turn:
                        raise Unavailable("buffer.busy", f"{self._path} is kept busy by another thread")

    def absorb(self, batch: WriteBatch) -> None:
        """Move all that is queued into the leader's batch."""
        with self._mutex:
            batch.turns += self._queue
            self._queue.clear()

    def pass_on(self, by: object) -> None:
        """Make the first in the queue the leader, or nobody, if it is `by` who leads."""
        if self._leader is by:
            with self._mutex:
                self._appoint()

    def leave(self, by: object, batch: WriteBatch | None = None) -> None:
        """Set right what an interrupt left: withdraw `by`, finish his batch or give it back, and pass the lead on."""
        with self._mutex:
            begun = batch.turns if batch is not None else []
            self._queue = deque(turn for turn in self._queue if turn is not by and turn not in begun)
            if batch is not None and not batch.is_over:
                for turn in reversed(begun):
                    if turn is not by:
                        turn.error = None
                        self._queue.appendleft(turn)
            if self._leader is by:
                self._appoint()
            elif isinstance(self._leader, Write):
                # `by` may have been interrupted after he had appointed this one, and before he woke him.
                self._leader.wake()
        if batch is not None and batch.is_over:
            batch.finish()

    def _appoint(self) -> None:
        self._leader = heir = self._queue[0] if self._queue else None
        if heir is not None:
            heir.wake()
