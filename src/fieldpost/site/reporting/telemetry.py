"""Tells central about the site's cached calls: by itself as they change, and in answer when central asks.

Theory of operation. Every change of a tracking row gets the next change sequence, in the transaction that changes it.
To tell of what changed is therefore to read on from a cursor, and it does not matter which process made the change. The
cursor here only says what was told on this connection; central keeps its own and asks from there, when the connection
opens and every few minutes. What it asks for first is all that it missed; where that ends, telemetry begins.

Telemetry is best effort: what is not acknowledged is told again while the connection stands, and otherwise it is
central's to ask. Nothing at the site ever waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.message import CallRecord
from fieldpost.core.times import to_text
from fieldpost.link.codec import encode
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
"""How long central may take to acknowledge; then the same is told again."""

_log = structlog.stdlib.get_logger("fieldpost.site")


class TelemetrySender:
    """What one site tells of its calls."""

    def __init__(
        self, tracking: Tracking, send: Callable[[LinkMessage], Awaitable[None]], clock: Clock, *, is_on: bool = True
    ) -> None:
        """`is_on` False leaves everything to central's questions."""
        self._tracking = tracking
        self._send = send
        self._clock = clock
        self._is_on = is_on
        self._told: int | None = None
        self._acked = asyncio.Event()

    def begin(self) -> None:
        """A connection has opened, or ended: telling begins where central's first questions end."""
        self._told = None

    def acked(self, ack: TelemetryAck) -> None:
        """Go on where central stands, which is back when it has missed something between."""
        if self._told is not None:
            self._told = ack.until
        self._acked.set()

    async def sweep(self) -> int:
        """Tell what has changed since it was last told; how many rows. Raises Unavailable when the connection ends."""
        count = 0
        while self._is_on and self._told is not None:
            told = self._told
            message = await asyncio.to_thread(self._changes, told)
            if message is None:
                return count
            self._acked.clear()
            await self._send(message)
            if not await self._is_acked() or self._told == told:
                return count
            count += len(message.rows)
        return count

    def answer(self, asked: Reconcile) -> ReconcileAnswer:
        """What has changed after the change that central names, the oldest first; blocks on the buffer's file."""
        stretch = _Stretch.read(self._tracking, asked.after, min(max(asked.limit, 1), ITEMS_MAX))
        answer = ReconcileAnswer(
            incarnation=self._tracking.incarnation(),
            after=asked.after,
            until=stretch.until,
            high=stretch.high,
            sent_at=to_text(self._clock.now()),
            rows=stretch.rows,
            has_more=stretch.has_more,
            has_gone_back=stretch.high < asked.high,
            forgotten=self._tracking.forgotten(),
        )
        if not answer.has_more and self._told is None:
            self._told = max(answer.until, 0)
        return answer

    def _changes(self, told: int) -> TelemetryMessage | None:
        try:
            stretch = _Stretch.read(self._tracking, told, ITEMS_MAX)
        except FieldpostError as error:
            _log.warning("telemetry.failed", code=error.code, error=error.message)
            return None
        if not stretch.rows:
            return None
        return TelemetryMessage(
            incarnation=self._tracking.incarnation(),
            after=told,
            until=stretch.until,
            sent_at=to_text(self._clock.now()),
            rows=stretch.rows,
            forgotten=self._tracking.forgotten(),
        )

    async def _is_acked(self) -> bool:
        try:
            async with asyncio.timeout(ACK_S):
                await self._acked.wait()
        except TimeoutError:
            return False
        return True


class _Stretch:
    """The rows that changed after a change, as many as may travel together, and up to where they tell all."""

    def __init__(self, rows: Sequence[CallRow], until: int, high: int, has_more: bool) -> None:
        self.rows = tuple(rows)
        self.until = until
        self.high = high
        self.has_more = has_more

    @classmethod
    def read(cls, tracking: Tracking, after: int, limit: int) -> "_Stretch":
        # The newest change first: all up to it is committed, so the rows read afterwards tell of all of it.
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
    return CallRow(
        call_id=record.call_id,
        category=record.category.value,
        target=record.target_summary,
        status=record.status.value,
        version=record.version,
        retry_count=record.retry_count,
        last_error=record.last_error,
        http_status=record.http_status,
        instance=record.instance,
        script=record.script,
        execution_id=record.execution_id,
        parent_execution_id=record.parent_execution_id,
        created_at=to_text(record.created_at),
        updated_at=to_text(record.updated_at),
        terminal_at=to_text(record.terminal_at) if record.terminal_at else None,
    )
