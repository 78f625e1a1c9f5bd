"""What callers put into one batch of the committer: each turn applied whole or not at all."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import apsw

from fieldpost.site.buffer.rows import Rows

T = TypeVar("T")

ROWS_AT_ONCE_MAX = 32


class Write(Generic[T]):
    """One caller's part of a batch."""

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
        """Its caller waits to acquire it a second time; whoever releases it wakes him."""
        self.is_done = False
        """Whether it has its result or its error for good."""
        self.result: T | None = None
        self.error: Exception | None = None

    def apply(self, cursor: apsw.Cursor) -> None:
        """Run the work. Its own failure is kept for its caller; one of the file is raised and ends the batch."""
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
        """Let its caller look how it stands, if he waits."""
        if self.woken.locked():
            self.woken.release()


class WriteBatch:
    """The turns that one leader commits together."""

    __slots__ = ("is_over", "turns")

    def __init__(self) -> None:
        self.turns: list[Write[Any]] = []
        self.is_over = False
        """Whether it is committed, or has failed and each turn has its error. Before, nothing of it is in the file."""

    def fail(self, error: Callable[[], Exception]) -> None:
        """Give each turn that has not failed by itself an error of its own; nothing of them is in the file."""
        for turn in self.turns:
            turn.error = turn.error or error()
        self.is_over = True

    def finish(self) -> None:
        """Tell the callers. May be done twice."""
        for turn in self.turns:
            turn.is_done = True
            if turn.woken.locked():
                turn.woken.release()


def apply_all(cursor: apsw.Cursor, turns: Sequence[Write[Any]]) -> None:
    """Apply all turns: plain rows together, whatever else each by itself."""
    by_table: dict[Rows, list[Write[Any]]] = {}
    for turn in turns:
        if turn.rows is None:
            turn.apply(cursor)
        else:
            by_table.setdefault(turn.rows, []).append(turn)
    for rows, plain in by_table.items():
        for start in range(0, len(plain), ROWS_AT_ONCE_MAX):
            part = plain[start : start + ROWS_AT_ONCE_MAX]
            try:
                rows.insert(cursor, [turn.row for turn in part])
            except apsw.ConstraintError:
                # One of them is to blame; alone, each finds out for itself.
                for turn in part:
                    turn.apply(cursor)
