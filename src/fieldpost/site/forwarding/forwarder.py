"""The forwarder of notifications: takes what is due out of the buffer, gives it to its carrier, settles the outcome.

Theory of operation. A sweep takes the oldest due notifications, batch after batch while there are more and
the other side is ready for them, several on their way at a time (`flight.py`). What was taken over there is cleared
here, what was refused for good goes to the rejected box, all else stays: a crash at any point only means that a message
is forwarded again, which central absorbs.

A sweep begins when the fixed interval is over, or at once when some process has written to the buffer; that wake-up is
a hint, the interval is the truth. After a failure only the interval counts, so that a busy site with a dead link does
not hammer it. A link that cannot be opened is not an attempt of any message and writes nothing: a week without a link
must not wear out the disk.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, TypeVar

import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.forwarding import Box, CarrierAnswer, Clear, NotNow, TryAgain, decide, wait
from fieldpost.core.times import to_text
from fieldpost.link.session import Room
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.event_log import EventKind
from fieldpost.site.buffer.rows import Outgoing
from fieldpost.site.carriers.carrier import Carrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.flight import BatchesInFlight

T = TypeVar("T")

_log = structlog.stdlib.get_logger("fieldpost.site")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep came to."""

    cleared: int = 0
    boxed: int = 0
    kept: int = 0
    error: str | None = None
    """Why it ended before everything due was tried."""
    wait_s: float | None = None
    """How long the other side asked us to stay away."""


@dataclass(frozen=True, slots=True)
class ForwardHealth:
    """How forwarding goes, for whoever looks."""

    is_ok: bool = True
    error_code: str | None = None
    error: str | None = None
    failing_since: datetime | None = None
    last_ok_at: datetime | None = None


class Forwarder:
    """Empties one site's buffer."""

    def __init__(self, buffer: Buffer, carrier: Carrier, options: ForwardOptions, clock: Clock, random: Random) -> None:
        self._buffer = buffer
        self._carrier = carrier
        self._options = options
        self._clock = clock
        self._random = random
        self._health = ForwardHealth()
        self._stopping: asyncio.Event | None = None
        # The buffer blocks, for up to its busy time-out: it is only ever used from this one thread.
        self._hands = ThreadPoolExecutor(1, thread_name_prefix="fieldpost-forwarder")

    @property
    def health(self) -> ForwardHealth:
        return self._health

    async def run(self, stopping: asyncio.Event) -> None:
        """Sweep until told to stop; a batch that is under way is finished first."""
        self._stopping = stopping
        while not stopping.is_set():
            mark = await self._mark()
            swept = await self.sweep()
            waiting = asyncio.create_task(self._rest(mark, swept))
            stopped = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (waiting, stopped):
                    task.cancel()
                await asyncio.gather(waiting, stopped, return_exceptions=True)

    async def sweep(self) -> Swept:
        """Forward all that is due now. Never raises for what the world does: it keeps everything and says why."""
        try:
            return await self._sweep()
        except FieldpostError as error:
            await self._failed(error.code, str(error))
            return Swept(error=error.message)
        except Exception as error:
            # A bug must not stop a site that nobody watches: everything is kept, and tried again.
            _log.exception("sweep.crashed", category=self._carrier.category.value)
            await self._failed("sweep.crashed", f"{type(error).__name__}: {error}")
            return Swept(error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Close the carrier; the buffer is its owner's."""
        await self._carrier.close()
        self._hands.shutdown(wait=True)

    async def _sweep(self) -> Swept:
        total = Swept()
        trouble: FieldpostError | None = None
        flight = BatchesInFlight(self._carrier, self._take, self._clock.monotonic, self._options.interval_s)
        try:
            while True:
                if trouble is None and total.error is None and not self._is_stopping:
                    await flight.fill()
                if flight.has_landed:
                    break
                messages, answers = await flight.answered()
                if isinstance(answers, FieldpostError):
                    # None of these left the site; what else is under way is heard out.
                    trouble = trouble or answers
                    continue
                swept = await self._settle(messages, answers)
                total = _sum(total, swept)
                if total.error is None:
                    total = replace(total, **await self._judge(swept))
        finally:
            await flight.abandon()
        if trouble is not None:
            raise trouble
        return total

    async def _take(self, room: Room, after: int) -> list[Outgoing]:
        return await self._do(
            self._buffer.take,
            self._clock.now(),
            items_max=min(room.items, self._options.batch_items),
            bytes_max=min(room.bytes, self._options.batch_bytes),
            after=after,
        )

    async def _judge(self, swept: Swept) -> dict[str, Any]:
        """Why the sweep should end after this batch, if it should."""
        if not swept.cleared and not swept.boxed:
            await self._failed("link.not_now", swept.error or "central takes nothing now")
            return {"error": swept.error or "central takes nothing now", "wait_s": swept.wait_s}
        await self._succeeded()
        return {} if self._carrier.may_go_on else {"error": "central asks us to wait"}

    @property
    def _is_stopping(self) -> bool:
        return self._stopping is not None and self._stopping.is_set()

    async def _settle(self, messages: Sequence[Outgoing], answers: Sequence[CarrierAnswer]) -> Swept:
        now = self._clock.now()
        interval = timedelta(seconds=self._options.interval_s)
        decided = [
            (message.message_id, decide(answer, interval, now))
            for message, answer in zip(messages, answers, strict=True)
        ]
        await self._do(self._buffer.settle, decided, now)
        for message_id, decision in decided:
            if isinstance(decision, Box):
                _log.warning("message.rejected", message_id=message_id, code=decision.code, error=decision.error)
        kept = [answer for answer in answers if isinstance(answer, NotNow)]
        waits = [answer.wait_s for answer in kept if answer.wait_s is not None]
        counts = Counter(type(decision) for _, decision in decided)
        return Swept(
            cleared=counts[Clear],
            boxed=counts[Box],
            kept=counts[TryAgain],
            error=kept[0].error if kept else None,
            wait_s=max(waits, default=None),
        )

    async def _rest(self, mark: tuple[int, int] | None, swept: Swept) -> None:
        """Wait for the interval to end, or after a good sweep for a hint that there is more."""
        interval = timedelta(seconds=self._options.interval_s * (1 + self._options.jitter * self._random.random()))
        until = self._clock.monotonic() + wait(interval, swept.wait_s if swept.error else None).total_seconds()
        while (left_s := until - self._clock.monotonic()) > 0:
            if swept.error is not None or mark is None:
                await self._clock.sleep(left_s)
                continue
            if await self._mark() != mark:
                return
            await self._clock.sleep(min(self._options.poll_s, left_s))

    async def _mark(self) -> tuple[int, int] | None:
        try:
            return await self._do(self._buffer.change_mark)
        except FieldpostError:
            return None

    async def _do(self, work: Callable[..., T], *arguments: object, **named: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._hands, partial(work, *arguments, **named))

    async def _failed(self, code: str, error: str) -> None:
        was_code = self._health.error_code
        since = self._health.failing_since or self._clock.now()
        self._health = replace(self._health, is_ok=False, error_code=code, error=error, failing_since=since)
        if was_code != code:
            # Once per kind of trouble, not once per interval.
            _log.warning("forwarding.failed", code=code, error=error)
            await self._tell(EventKind.FORWARDING_FAILED, f"{code}: {error}")

    async def _succeeded(self) -> None:
        earlier, self._health = self._health, ForwardHealth(last_ok_at=self._clock.now())
        if earlier.failing_since is not None:
            since = to_text(earlier.failing_since)
            _log.info("forwarding.resumed", failing_since=since)
            await self._tell(EventKind.FORWARDING_RESUMED, f"after trouble since {since}")

    async def _tell(self, kind: EventKind, text: str) -> None:
        entry = event_log.event(kind, self._clock.now(), text, category=self._carrier.category)
        try:
            await self._do(self._buffer.write, event_log.append, [entry])
        except FieldpostError as error:
            _log.warning("event.not_written", code=error.code, error=error.message)


def _sum(total: Swept, swept: Swept) -> Swept:
    return replace(
        total,
        cleared=total.cleared + swept.cleared,
        boxed=total.boxed + swept.boxed,
        kept=total.kept + swept.kept,
    )
