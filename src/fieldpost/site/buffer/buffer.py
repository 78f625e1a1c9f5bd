"""The site's buffer: one SQLite file that keeps messages until they have left the site.

Any number of processes may have the file open: scripts add messages, the agent takes and settles them. A message is on
disk when `add` or `issue` returns. `Buffer` opens the file, decides when a full disk or a budget refuses new messages,
and runs transactions. The SQL is in the modules beside it, one per table; callers pass their functions to `read` and
`write`:

    buffer.write(calls.claim, Category.EXTERNAL_CALL, "erp", now, claimant="agent-7", until=end, items_max=4)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import apsw

from fieldpost.core.errors import Conflict, Unavailable
from fieldpost.core.ids import CallId
from fieldpost.core.sites.forwarding import Decision
from fieldpost.core.sites.message import Message, NewCall, RejectedMessage
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import from_microseconds
from fieldpost.site.buffer import calls, event_log, figures, keys, notifications, rejected
from fieldpost.site.buffer.committer import Committer
from fieldpost.site.buffer.figures import Depth
from fieldpost.site.buffer.keys import IdempotencyKey
from fieldpost.site.buffer.notifications import NEW_ROWS, notification_event
from fieldpost.site.buffer.reserve import Reserve
from fieldpost.site.buffer.rows import Outgoing
from fieldpost.site.config.options import BufferOptions, EventOptions

T = TypeVar("T")
P = ParamSpec("P")

# Bytes of the used and of the free pages in the file.
_BYTES = """
SELECT (page_count - freelist_count) * page_size, freelist_count * page_size
FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""

FULL = "buffer.full"
RESERVE_CHECK_EVERY = 32
"""New messages between two checks of the reserve; the messages that slip through are few for the reserve's size."""
REWRITE_BYTES_MAX = 32 * 1024**2
"""The most content that is rewritten to return free pages to the disk: it is in memory meanwhile, and writers wait."""


@dataclass(frozen=True, slots=True)
class Issued:
    """The result of issuing a call."""

    call_id: CallId
    message: Message | None
    """The message, claimed by the caller; None when the key belongs to a call that was issued before."""


class Buffer:
    """One site's buffer. Safe to use from many threads; a forked child opens its own connection."""

    def __init__(
        self, path: Path, options: BufferOptions | None = None, event_options: EventOptions | None = None
    ) -> None:
        self._options = options or BufferOptions()
        self._logs_all = (event_options or EventOptions()).notifications == "all"
        self._needs_transaction = self._logs_all or self._options.bytes_max > 0
        self._added = 0
        self.reserve = Reserve(path.parent, self._options.reserve_bytes)
        self._committer: Committer | None = self._connect(path)
        self.reserve.create()

    def add(self, message_id: str, payload: str, created_at: int, key: IdempotencyKey | None = None) -> str:
        """Put a notification into the buffer; it is on disk when this returns, and not confirmed when this raises.
        An unconfirmed message is absent, with two exceptions: after `buffer.io`, because the log may keep what the disk
        could not sync, and after a salvage that replaced the file for longer than half a minute. Such a message may
        still be delivered; adding it again with the same key returns its id.

        `created_at` is in microseconds. Returns its id, or the id of the earlier message with the same key. Raises
        Unavailable with the code `buffer.busy`, `buffer.full`, `buffer.over_budget` or `buffer.io`, and Conflict for an
        id that exists or a key that was used with different content.
        """
        row = (message_id, payload, created_at)
        try:
            if key is None and not self._needs_transaction:
                self._refuse_when_spent()
                try:
                    self._open.insert(NEW_ROWS, row)
                except Unavailable as error:
                    self._make_room(error)
                    self._open.insert(NEW_ROWS, row)
                return message_id
            return self._write_new(lambda cursor: self._add(cursor, row, from_microseconds(created_at), key))
        except apsw.ConstraintError as error:
            raise _not_new(message_id, error) from error

    def _add(self, cursor: apsw.Cursor, row: tuple[Any, ...], created_at: datetime, key: IdempotencyKey | None) -> str:
        message_id: str = row[0]
        if (known := self._reserve_key(cursor, key, message_id, created_at)) is not None:
            return known
        NEW_ROWS.insert(cursor, [row])
        if self._logs_all:
            event_log.append(cursor, [notification_event(SiteEventKind.QUEUED, created_at, "queued", message_id)])
        return message_id

    def issue(self, call: NewCall, *, claimant: str, until: datetime, key: IdempotencyKey | None = None) -> Issued:
        """Put a cached call into the buffer, claimed by its caller, and start its record; raises as `add` does."""

        def work(cursor: apsw.Cursor) -> Issued:
            if (known := self._reserve_key(cursor, key, call.call_id, call.created_at)) is not None:
                return Issued(CallId(known), None)
            return Issued(call.call_id, calls.insert(cursor, call, claimant, until))

        try:
            return self._write_new(work)
        except apsw.ConstraintError as error:
            raise _not_new(call.call_id, error) from error

    def take(self, now: datetime, *, items_max: int, bytes_max: int, after: int = 0) -> list[Outgoing]:
        """The oldest due notifications with a sequence above `after`, up to both limits but at least one."""
        return self.read(notifications.take, now, items_max=items_max, bytes_max=bytes_max, after=after)

    def settle(self, decisions: Sequence[tuple[str, Decision]], now: datetime) -> None:
        """Apply the decisions for these notifications, in one transaction."""
        self.write(notifications.settling(decisions, now, logs_all=self._logs_all))

    def retry(self, call_id: str, now: datetime, *, by: str | None = None) -> bool:
        """Put a parked call back into the queue, for an operator; whether it was parked."""
        return self.write(calls.retry, call_id, now, by) is not None

    def discard(self, call_id: str, now: datetime, *, by: str | None = None) -> bool:
        """Discard a parked call for good, for an operator; whether it was parked."""
        return self.write(calls.discard, call_id, now, by) is not None

    def find(self, message_id: str) -> Message | RejectedMessage | None:
        """The waiting message or the rejected notification with this id; None if this site has neither."""
        return self.read(notifications.find, message_id)

    def rejected(self, limit: int = 100) -> list[RejectedMessage]:
        """The content of the rejected box, oldest first."""
        return self.read(rejected.page, limit=limit)

    def depth(self) -> Depth:
        """How many messages wait, and the age of the oldest."""
        return self.read(figures.depth)

    def change_mark(self) -> tuple[int, int]:
        """A value that changes with every commit of any process: a hint that there may be more to take."""
        return self._open.change_mark()

    def read(self, work: Callable[Concatenate[apsw.Cursor, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the buffer's SQL modules on the committed data."""
        return self._open.read(lambda cursor: work(cursor, *args, **kwargs))

    def write(self, work: Callable[Concatenate[apsw.Cursor, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the buffer's SQL modules in one transaction, which is on disk when this returns.

        For settling messages and recording results: on a full disk it may use the reserve.
        """
        try:
            return self._open.write(lambda cursor: work(cursor, *args, **kwargs))
        except Unavailable as error:
            if error.code != FULL:
                raise
            self.reserve.give_up()
            self._open.checkpoint()
            return self._open.write(lambda cursor: work(cursor, *args, **kwargs))

    def keep_reserve(self) -> bool:
        """Create or restore the reserve; whether it is complete now. If space is short, the log is emptied first."""
        if self.reserve.keep():
            return True
        self._open.checkpoint()
        return self.reserve.keep(self.read(_bytes)[1])

    def return_free_pages(self) -> None:
        """Return the file's free pages to the disk, if that is nearly full and rewriting the content is quick."""
        used, free = self.read(_bytes)
        if used > REWRITE_BYTES_MAX or not self.reserve.is_disk_nearly_full(free):
            return
        # Rewriting needs space for the content in the log, if necessary that of the reserve.
        if not self._open.vacuum() and self.reserve.give_up():
            self._open.vacuum()

    def close(self) -> None:
        """Release the connection. Later calls raise Conflict; closing twice is allowed."""
        committer, self._committer = self._committer, None
        if committer is not None:
            committer.release()

    def _connect(self, path: Path) -> Committer:
        try:
            return Committer.shared(path)
        except Unavailable as error:
            if error.code != FULL or not self.reserve.give_up():
                raise
            # Opening writes a little too, and the agent must get in to make room.
            return Committer.shared(path)

    def _write_new(self, work: Callable[[apsw.Cursor], T]) -> T:
        """Write a new message, never into the space reserved for settling."""
        self._refuse_when_spent()
        try:
            return self._open.write(work)
        except Unavailable as error:
            self._make_room(error)
            return self._open.write(work)

    def _make_room(self, error: Unavailable) -> None:
        """Prepare one more try on a full disk: the log may occupy more space than its content needs."""
        if error.code != FULL:
            raise error
        self._open.checkpoint()

    def _reserve_key(
        self, cursor: apsw.Cursor, key: IdempotencyKey | None, message_id: str, created_at: datetime
    ) -> str | None:
        """The id of the earlier message with this key; else check the budget, keep the key and return None."""
        if key is not None and (known := keys.earlier(cursor, key)) is not None:
            return known
        if self._options.bytes_max:
            self._refuse_beyond_budget(cursor)
        if key is not None:
            keys.remember(cursor, key, message_id, created_at)
        return None

    def _refuse_when_spent(self) -> None:
        self._added = (self._added + 1) % RESERVE_CHECK_EVERY
        if self._added == 1 and self.reserve.is_given_up and not self.keep_reserve():
            self._added = 0
            raise Unavailable(
                FULL,
                "the site's disk is full; the remaining space is reserved for forwarding buffered messages",
                hint="free some space",
            )

    def _refuse_beyond_budget(self, cursor: apsw.Cursor) -> None:
        if _bytes(cursor)[0] >= self._options.bytes_max:
            raise Unavailable(
                "buffer.over_budget",
                f"the buffer has reached its limit of {self._options.bytes_max} bytes ([buffer] bytes_max)",
                hint="send again when some messages have left; buffered messages are never dropped",
            )

    @property
    def _open(self) -> Committer:
        if self._committer is None:
            raise Conflict("buffer.closed", "this site was closed", hint="open it again with Site.open(folder)")
        return self._committer


def _bytes(cursor: apsw.Cursor) -> tuple[int, int]:
    used, free = cast(tuple[int, int], cursor.execute(_BYTES).fetchall()[0])
    return used, free


def _not_new(message_id: str, error: apsw.ConstraintError) -> Conflict:
    return Conflict("message.not_new", f"the buffer rejects the message {message_id}: {error}")
