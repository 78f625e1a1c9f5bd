"""The site's buffer: what waits to leave the site, and the box of what central refused for good.

Any number of processes may have the file open: scripts add, the agent takes and settles. An added message is on disk
when `add` or `issue` returns. A notification leaves only by `settle`; a cached call, whose record outlives it, by what
`claims` writes under its claim. Each of these is one transaction, which `Buffer` runs; the SQL stands here and in the
modules for claims, tracking, keys and events, beside schema.sql.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw

from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.core.ids import CallId
from fieldpost.core.sites.forwarding import WAIT_MAX, Box, CallDecision, Clear, Decision, TryAgain
from fieldpost.core.sites.message import CENTRAL, CallRecord, Category, Message, Operation, RejectedMessage
from fieldpost.core.times import from_microseconds, to_microseconds
from fieldpost.site.buffer import calls, event_log, keys
from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.event_log import EventKind
from fieldpost.site.buffer.keys import IdempotencyKey
from fieldpost.site.buffer.reserve import Reserve
from fieldpost.site.buffer.rows import COLUMNS, REJECTED_COLUMNS, Outgoing, Rows, message_from, rejected_from
from fieldpost.site.config.options import BufferOptions, EventOptions

T = TypeVar("T")

_NOTIFICATIONS = Rows(
    "messages",
    ("message_id", "payload", "created_at"),
    {"category": f"'{Category.NOTIFICATION.value}'", "target": f"'{CENTRAL}'"},
)

# Walked in commit order. A due time beyond the longest wait is one that the clock has jumped away from: due as well.
_TAKE = f"""
SELECT sequence, message_id, payload, octet_length(payload) FROM messages
WHERE sequence > :after AND (due_at <= :now OR due_at > :now + {WAIT_MAX.seconds * 1_000_000})
ORDER BY sequence LIMIT :items_max
"""

_FIND = f"""
SELECT {COLUMNS}, 0 FROM messages WHERE message_id = :message_id
UNION ALL SELECT {COLUMNS}, claim_token FROM calls WHERE message_id = :message_id
"""

# One statement for all of them: at each step of a statement other threads may come in between.
_CLEAR = "DELETE FROM messages WHERE message_id IN (SELECT value FROM json_each(:message_ids))"

_BOX = f"""
INSERT INTO rejected ({REJECTED_COLUMNS})
SELECT message_id, category, target, payload, :code, :error, retry_count, created_at, :now
FROM messages WHERE message_id = :message_id
ON CONFLICT (message_id) DO NOTHING
"""

_TRY_AGAIN = """
UPDATE messages
SET status = 'retrying', retry_count = retry_count + 1, last_error = :error, last_attempt_at = :now, due_at = :due_at
WHERE message_id = :message_id
"""

_FIND_REJECTED = f"SELECT {REJECTED_COLUMNS} FROM rejected WHERE message_id = :message_id"
_LIST_REJECTED = f"SELECT {REJECTED_COLUMNS} FROM rejected ORDER BY rejected_at, message_id LIMIT :limit"

_DEPTH = f"""
SELECT '{Category.NOTIFICATION.value}', count(*) FROM messages
UNION ALL SELECT category, count(*) FROM calls WHERE status <> 'parked' GROUP BY category
"""
_OLDEST_NOTIFICATION = "SELECT created_at FROM messages ORDER BY sequence LIMIT 1"
_OLDEST_CALL = "SELECT created_at FROM calls WHERE status <> 'parked' ORDER BY sequence LIMIT 1"
_OLDEST = f"""
SELECT min(created_at)
FROM (SELECT * FROM ({_OLDEST_NOTIFICATION}) UNION ALL SELECT * FROM ({_OLDEST_CALL}))
"""
_COUNT_REJECTED = "SELECT count(*) FROM rejected"


# What is in use, without the free pages that stand between.
_BYTES_USED = """
SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""

FULL = "buffer.full"
LOOK_EVERY = 32


@dataclass(frozen=True, slots=True)
class Depth:
    """How much waits to leave by itself. What is parked waits for a person, and is counted by its tracking records."""

    waiting: dict[Category, int]
    rejected: int
    oldest_created_at: datetime | None


@dataclass(frozen=True, slots=True)
class Issued:
    """What came of issuing an operation."""

    call_id: CallId
    message: Message | None
    """The message that the caller now holds; None when its key stands for an operation that was issued before."""


class Buffer:
    """One site's buffer. Safe to use from many threads; forked children get a connection of their own."""

    def __init__(
        self, path: Path, options: BufferOptions | None = None, event_options: EventOptions | None = None
    ) -> None:
        self._options = options or BufferOptions()
        self._tells_all = (event_options or EventOptions()).notifications == "all"
        self._needs_more_than_rows = self._tells_all or self._options.bytes_max > 0
        self._looks = 0
        self.reserve = Reserve(path.parent, self._options.reserve_bytes)
        self._committer: Committer | None = self._connect(path)

    def add(self, message_id: str, payload: str, created_at: int, key: IdempotencyKey | None = None) -> str:
        """Put a notification into the buffer; it is on disk when this returns, and absent when this raises.

        `created_at` is in microseconds. Returns its id, or that of the message which the same key stands for. Raises
        Unavailable with the code `buffer.busy`, `buffer.full`, `buffer.over_budget` or `buffer.io`, Conflict for an id
        that is there or a key that was used for something else.
        """
        row = (message_id, payload, created_at)
        try:
            if key is None and not self._needs_more_than_rows:
                self._refuse_when_spent()
                try:
                    self._open.insert(_NOTIFICATIONS, row)
                except Unavailable as error:
                    self._make_room(error)
                    self._open.insert(_NOTIFICATIONS, row)
                return message_id
            return self._write_new(lambda cursor: self._add(cursor, row, from_microseconds(created_at), key))
        except apsw.ConstraintError as error:
            raise _not_new(message_id, error) from error

    def _add(self, cursor: apsw.Cursor, row: tuple[Any, ...], created_at: datetime, key: IdempotencyKey | None) -> str:
        message_id: str = row[0]
        if key is not None:
            known = keys.earlier(cursor, key)
            if known is not None:
                return known
        if self._options.bytes_max:
            self._refuse_beyond_budget(cursor)
        if key is not None:
            keys.remember(cursor, key, message_id, created_at)
        _NOTIFICATIONS.insert(cursor, [row])
        if self._tells_all:
            event_log.append(cursor, [_of_notification(EventKind.QUEUED, created_at, "queued", message_id)])
        return message_id

    def issue(
        self, operation: Operation, *, claimant: str, until: datetime, key: IdempotencyKey | None = None
    ) -> Issued:
        """Put a cached call into the buffer, claimed by its caller, and begin its record; raises as `add` does."""

        def work(cursor: apsw.Cursor) -> Issued:
            if key is not None:
                known = keys.earlier(cursor, key)
                if known is not None:
                    return Issued(CallId(known), None)
            if self._options.bytes_max:
                self._refuse_beyond_budget(cursor)
            if key is not None:
                keys.remember(cursor, key, operation.call_id, operation.created_at)
            return Issued(operation.call_id, calls.insert(cursor, operation, claimant, until))

        try:
            return self._write_new(work)
        except apsw.ConstraintError as error:
            raise _not_new(operation.call_id, error) from error

    def take(self, now: datetime, *, items_max: int, bytes_max: int, after: int = 0) -> list[Outgoing]:
        """The oldest notifications that are due, at most so many, with at most so many bytes of payload (one at least).

        Only those committed after the one of the sequence `after`: those up to it are on their way.
        """
        return self._open.read(lambda cursor: _take(cursor, now, items_max, bytes_max, after))

    def settle(self, decisions: Sequence[tuple[str, Decision]], now: datetime) -> None:
        """Carry out what was decided for these notifications, all in one transaction."""
        cleared: list[str] = []
        boxed: list[dict[str, str | int]] = []
        again: list[dict[str, str | int]] = []
        told: list[event_log.SiteEvent] = []
        moment = to_microseconds(now)
        for message_id, decision in decisions:
            match decision:
                case Clear():
                    cleared.append(message_id)
                    if self._tells_all:
                        told.append(_of_notification(EventKind.DELIVERED, now, "central has it", message_id))
                case Box(code=code, error=error):
                    boxed.append({"message_id": message_id, "code": code, "error": error, "now": moment})
                    cleared.append(message_id)
                    told.append(_of_notification(EventKind.REJECTED, now, f"{code}: {error}", message_id))
                case TryAgain(due_at=due_at, error=error):
                    due = to_microseconds(due_at)
                    again.append({"message_id": message_id, "error": error, "now": moment, "due_at": due})
                    if self._tells_all:
                        told.append(_of_notification(EventKind.RETRIED, now, error, message_id))

        def work(cursor: apsw.Cursor) -> None:
            # The box before the clearing: it copies the row.
            if boxed:
                cursor.executemany(_BOX, boxed)
            if cleared:
                cursor.execute(_CLEAR, {"message_ids": json.dumps(cleared)})
            if again:
                cursor.executemany(_TRY_AGAIN, again)
            event_log.append(cursor, told)

        self.write(work)

    def due_targets(self, category: Category, now: datetime) -> list[str]:
        """The targets of this category for which a cached call is due that nobody holds."""
        return self._open.read(lambda cursor: calls.due_targets(cursor, category, now))

    def next_due(self, category: Category, now: datetime) -> datetime | None:
        """When the next cached call of this category falls due after now; None when none will."""
        return self._open.read(lambda cursor: calls.next_due(cursor, category, now))

    def claim(
        self, category: Category, target: str, now: datetime, *, claimant: str, until: datetime, items_max: int
    ) -> list[Message]:
        """Take cached calls that are due for the target, the longest due first; nobody else gets them until then."""
        return self.write(
            lambda cursor: calls.claim(
                cursor, category, target, now, claimant=claimant, until=until, items_max=items_max
            )
        )

    def settle_call(self, message: Message, decision: CallDecision, now: datetime) -> CallRecord | None:
        """Write what was decided for a cached call that was claimed; None when the claim was lost: nothing changed."""
        return self.write(lambda cursor: calls.settle(cursor, message, decision, now))

    def release(self, messages: Sequence[Message]) -> None:
        """Give claims back without an outcome."""
        self.write(lambda cursor: calls.release(cursor, messages))

    def retry(self, call_id: str, now: datetime, *, by: str | None = None) -> bool:
        """Put a parked cached call back into the queue, as an operator asked; whether it was parked."""
        return self.write(lambda cursor: calls.retry(cursor, call_id, now, by)) is not None

    def discard(self, call_id: str, now: datetime, *, by: str | None = None) -> bool:
        """Give a parked cached call up for good, as an operator asked; whether it was parked."""
        return self.write(lambda cursor: calls.discard(cursor, call_id, now, by)) is not None

    def find(self, message_id: str) -> Message | RejectedMessage | None:
        """The message, waiting or in the rejected box; None when this site has it no more, or never had it."""
        return self._open.read(lambda cursor: _find(cursor, message_id))

    def rejected(self, limit: int = 100) -> list[RejectedMessage]:
        """What lies in the rejected box, the longest there first."""
        return self._open.read(
            lambda cursor: [rejected_from(row) for row in cursor.execute(_LIST_REJECTED, {"limit": limit})]
        )

    def depth(self) -> Depth:
        """How much waits and since when."""
        return self._open.read(_depth)

    def oldest_notification(self) -> datetime | None:
        """When the notification that waits longest was added; None when none waits."""
        rows: list[tuple[Any, ...]] = self._open.read(lambda c: c.execute(_OLDEST_NOTIFICATION).fetchall())
        return from_microseconds(rows[0][0]) if rows else None

    def change_mark(self) -> tuple[int, int]:
        """Differs from an earlier one when any process has written since: a hint that there may be more to take."""
        return self._open.change_mark()

    def read(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Run a function of the site's SQL modules on what is committed."""
        return self._open.read(work)

    def write(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Run functions of the site's SQL modules in one transaction; what they did is on disk when this returns.

        For what lets messages leave, or records what became of them: on a full disk it may use the reserve.
        """
        try:
            return self._open.write(work)
        except Unavailable as error:
            if error.code != FULL:
                raise
            self.reserve.give_up()
            self._open.checkpoint()
            return self._open.write(work)

    def close(self) -> None:
        """Give back the connection. A closed buffer refuses everything; closing twice is fine."""
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.release()

    def _connect(self, path: Path) -> Committer:
        try:
            return Committer.shared(path)
        except Unavailable as error:
            if error.code != FULL or not self.reserve.give_up():
                raise
            # Opening takes a little room too, and whoever would let messages leave must get in.
            return Committer.shared(path)

    def _write_new(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Write what is new to the buffer: never into the room that was kept back for what leaves."""
        self._refuse_when_spent()
        try:
            return self._open.write(work)
        except Unavailable as error:
            self._make_room(error)
            return self._open.write(work)

    def _make_room(self, error: Unavailable) -> None:
        """For one more try on a full disk: the log may hold more room than what is in it needs."""
        if error.code != FULL:
            raise error
        self._open.checkpoint()

    def _refuse_when_spent(self) -> None:
        # A look at the folder now and then is enough: what slips through in between is little for a reserve's size.
        self._looks = (self._looks + 1) % LOOK_EVERY
        if self._looks == 1 and self.reserve.is_given_up and not self.reserve.keep():
            self._looks = 0
            raise Unavailable(
                FULL, "the site's disk is full; what room is left is for what is buffered", hint="free some space"
            )

    def _refuse_beyond_budget(self, cursor: apsw.Cursor) -> None:
        rows: list[tuple[Any, ...]] = cursor.execute(_BYTES_USED).fetchall()
        if rows[0][0] >= self._options.bytes_max:
            raise Unavailable(
                "buffer.over_budget",
                f"the buffer has filled the {self._options.bytes_max} bytes that [buffer] bytes_max gives it",
                hint="nothing that is buffered is dropped; send again when some of it has left",
            )

    @property
    def _open(self) -> Committer:
        if self._committer is None:
            raise Conflict("buffer.closed", "this site was closed", hint="open it again by Site.open(folder)")
        return self._committer


def _take(cursor: apsw.Cursor, now: datetime, items_max: int, bytes_max: int, after: int) -> list[Outgoing]:
    taken: list[Outgoing] = []
    size = 0
    parameters = {"now": to_microseconds(now), "items_max": items_max, "after": after}
    for sequence, message_id, payload, payload_bytes in cursor.execute(_TAKE, parameters):
        size += payload_bytes
        if taken and size > bytes_max:
            break
        taken.append(Outgoing(sequence, message_id, payload))
    return taken


def _find(cursor: apsw.Cursor, message_id: str) -> Message | RejectedMessage | None:
    # Two statements see one moment only inside a transaction: else a message could move to the box between them.
    cursor.execute("BEGIN")
    try:
        row = cursor.execute(_FIND, {"message_id": message_id}).fetchone()
        if row is not None:
            return message_from(row)
        row = cursor.execute(_FIND_REJECTED, {"message_id": message_id}).fetchone()
        return None if row is None else rejected_from(row)
    finally:
        cursor.execute("COMMIT")


def _depth(cursor: apsw.Cursor) -> Depth:
    waiting = {Category(category): count for category, count in cursor.execute(_DEPTH) if count}
    figures: list[Any] = [cursor.execute(statement).fetchall()[0][0] for statement in (_OLDEST, _COUNT_REJECTED)]
    oldest, rejected = figures
    return Depth(waiting, rejected, None if oldest is None else from_microseconds(oldest))


def _not_new(message_id: str, error: apsw.ConstraintError) -> Conflict:
    return Conflict("message.not_new", f"the buffer does not take message {message_id}: {error}")


def _of_notification(kind: EventKind, now: datetime, text: str, message_id: str) -> event_log.SiteEvent:
    return event_log.event(kind, now, text, category=Category.NOTIFICATION, message_id=message_id)
