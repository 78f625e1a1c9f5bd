"""Reports the site's cached calls to central: telemetry as they change, and answers to reconciliation.

Theory of operation. Every change of a tracking row gets the next change sequence, in the transaction that changes it.
To send changes is therefore to read on from a cursor, and it does not matter which process made the change. The cursor
here only covers this connection; central keeps its own and asks for changes after it, when the connection opens and
every few minutes. Its first request fetches all changes it missed; telemetry continues from there.

Telemetry is best effort: unacknowledged rows are sent again while the connection is open, and otherwise central asks
for them. Nothing at the site waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.message import CallRecord
from fieldpost.core.times import to_text
from fieldpost.link.codec import encode
from fieldpost.link.http.view import plain
from fieldpost.link.messages import (
    FRAME_BYTES_MAX,
    ITEMS_MAX,
    CallRow,
    LinkMessage,
    Reconcile,
    ReconcileAnswer,
    TelemetryAck,
)
from fieldpost.link.messages import Telemetry as TelemetryMessage
from fieldpost.site.buffer.tracking import Tracking

ACK_S = 30.0
"""How long to wait for central's acknowledgement before the rows are sent again."""

_SAME = tuple(name for name in CallRow.__struct_fields__ if name != "target")

_log = structlog.stdlib.get_logger("fieldpost.site")


class TelemetrySender:
    """Sends the changes of one site's calls."""

    def __init__(
        self, tracking: Tracking, send: Callable[[LinkMessage], Awaitable[None]], clock: Clock, *, is_on: bool = True
    ) -> None:
        """`is_on` False leaves everything to reconciliation."""
        self._tracking = tracking
        self._send = send
        self._clock = clock
        self._is_on = is_on
        self._position: int | None = None
        self._acked = asyncio.Event()

    def begin(self) -> None:
        """Start again after a connection opened or ended: telemetry waits for the first reconciliation."""
        self._position = None

    def resume(self) -> None:
        """Start again on an open connection, when this node of a pair begins to report: central answers the first rows
        with its position, and telemetry continues from there."""
        self._position = 0

    def acked(self, ack: TelemetryAck) -> None:
        """Continue at central's position, which is further back if it has missed rows."""
        if self._position is not None:
            self._position = ack.until
        self._acked.set()

    async def sweep(self) -> int:
        """Send all changes since the last sweep; returns how many rows. Raises Unavailable when the connection ends."""
        count = 0
        while self._is_on and self._position is not None:
            after = self._position
            message = await asyncio.to_thread(self._changes, after)
            if message is None:
                return count
            self._acked.clear()
            await self._send(message)
            if not await self._is_acked() or self._position == after:
                return count
            count += len(message.rows)
        return count

    def answer(self, asked: Reconcile) -> ReconcileAnswer:
        """The changes after the one that central names, oldest first; blocks on the buffer's file."""
        changes = _Changes.read(self._tracking, asked.after, min(max(asked.limit, 1), ITEMS_MAX))
        answer = ReconcileAnswer(
            incarnation=self._tracking.incarnation(),
            after=asked.after,
            until=changes.until,
            high=changes.high,
            sent_at=to_text(self._clock.now()),
            rows=changes.rows,
            has_more=changes.has_more,
            has_gone_back=changes.high < asked.high,
            forgotten=self._tracking.forgotten(),
        )
        if not answer.has_more and self._position is None:
            self._position = max(answer.until, 0)
        return answer

    def _changes(self, after: int) -> TelemetryMessage | None:
        try:
            changes = _Changes.read(self._tracking, after, ITEMS_MAX)
        except FieldpostError as error:
            _log.warning("telemetry.failed", code=error.code, error=error.message)
            return None
        if not changes.rows:
            return None
        return TelemetryMessage(
            incarnation=self._tracking.incarnation(),
            after=after,
            until=changes.until,
            sent_at=to_text(self._clock.now()),
            rows=changes.rows,
            forgotten=self._tracking.forgotten(),
        )

    async def _is_acked(self) -> bool:
        try:
            async with asyncio.timeout(ACK_S):
                await self._acked.wait()
        except TimeoutError:
            return False
        return True


class _Changes:
    """Rows that changed after a change, as many as fit into a message, and the change up to which they are complete."""

    def __init__(self, rows: Sequence[CallRow], until: int, high: int, has_more: bool) -> None:
        self.rows = tuple(rows)
        self.until = until
        self.high = high
        self.has_more = has_more

    @classmethod
    def read(cls, tracking: Tracking, after: int, limit: int) -> "_Changes":
        # Read the newest change first: everything up to it is committed, so the rows read next are complete.
        high = tracking.last_change()
        found = tracking.changed_since(after, limit + 1)
        rows = [_row(record) for record in found[:limit]]
        while len(rows) > 1 and sum(len(encode(row)) for row in rows) > FRAME_BYTES_MAX // 2:
            rows = rows[: len(rows) // 2]
        if len(rows) < len(found):
            return cls(rows, found[len(rows) - 1].change_sequence, high, True)
        last = found[-1].change_sequence if found else 0
        return cls(rows, max(high, last), max(high, last), False)


def _row(record: CallRecord) -> CallRow:
    same: dict[str, Any] = {name: plain(getattr(record, name)) for name in _SAME}
    return CallRow(target=record.target_summary, **same)
