"""Forwards notifications to central: takes due ones from the buffer, sends them, settles the results.

Theory of operation. A sweep takes the oldest due notifications, batch by batch, with several batches in flight
(`flight.py`). Accepted notifications are cleared, notifications refused for good go to the rejected box, all others
stay. A crash at any point only means that a message is forwarded again, which central recognizes as a duplicate.

A sweep starts after a fixed interval, or immediately when a process has written to the buffer; that wake-up is a hint,
the interval is authoritative. After a failure only the interval counts, so that a busy site does not hammer a dead
link. Failing to open the link is not an attempt of any message and writes nothing: a week without a link must not wear
out the disk.
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
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import to_text
from fieldpost.link.session import Room
from fieldpost.site.buffer import event_log
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.rows import Outgoing
from fieldpost.site.carriers.carrier import Carrier
from fieldpost.site.config.options import ForwardOptions
from fieldpost.site.forwarding.flight import BatchesInFlight

T = TypeVar("T")

_log = structlog.stdlib.get_logger("fieldpost.site")


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep."""

    cleared: int = 0
    boxed: int = 0
    kept: int = 0
    error: str | None = None
    """Why it ended before all due messages were tried."""
    wait_s: float | None = None
    """The wait that central requested."""


@dataclass(frozen=True, slots=True)
class ForwardHealth:
    """The state of forwarding, for status and health reports."""

    is_ok: bool = True
    error_code: str | None = None
    error: str | None = None
    failing_since: datetime | None = None
    last_ok_at: datetime | None = None


class Forwarder:
    """Forwards the notifications of one site."""

    def __init__(self, buffer: Buffer, carrier: Carrier, options: ForwardOptions, clock: Clock, random: Random) -> None:
        self._buffer = buffer
        self._carrier = carrier
        self._options = options
        self._clock = clock
        self._random = random
        self._health = ForwardHealth()
        self._stopping: asyncio.Event | None = None
        # The buffer may block for its busy timeout, so it is used only from this thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fieldpost-forwarder")

    @property
    def health(self) -> ForwardHealth:
        return self._health

    async def run(self, stopping: asyncio.Event) -> None:
        """Sweep until `stopping` is set; batches in flight are finished first."""
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
        """Forward all due notifications. A failure keeps them and is part of the result, never an exception."""
        try:
            return await self._sweep()
        except FieldpostError as error:
            await self._failed(error.code, str(error))
            return Swept(error=error.message)
        except Exception as error:
            # A bug must not stop an unattended site: all messages are kept and retried.
            _log.exception("sweep.crashed", category=self._carrier.category.value)
            await self._failed("sweep.crashed", f"{type(error).__name__}: {error}")
            return Swept(error=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Close the carrier. The buffer stays open."""
        await self._carrier.close()
        self._thread.shutdown(wait=True)

    async def _sweep(self) -> Swept:
        total = Swept()
        failure: FieldpostError | None = None
        flight = BatchesInFlight(self._carrier, self._take, self._clock.monotonic, self._options.interval_s)
        try:
            while True:
                if failure is None and total.error is None and not self._is_stopping:
                    await flight.fill()
                if flight.has_landed:
                    break
                messages, answers = await flight.answered()
                if isinstance(answers, FieldpostError):
                    # None of these left the site; wait for the other batches.
                    failure = failure or answers
                    continue
                swept = await self._settle(messages, answers)
                total = _sum(total, swept)
                if total.error is None:
                    total = replace(total, **await self._judge(swept))
        finally:
            await flight.abandon()
        if failure is not None:
            raise failure
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
        """The error and wait that end the sweep after this batch; empty to continue."""
        if not swept.cleared and not swept.boxed:
            await self._failed("link.not_now", swept.error or "central accepts nothing at the moment")
            return {"error": swept.error or "central accepts nothing at the moment", "wait_s": swept.wait_s}
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
        """Wait for the interval, or after a successful sweep until another process writes."""
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
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments, **named))

    async def _failed(self, code: str, error: str) -> None:
        was_code = self._health.error_code
        since = self._health.failing_since or self._clock.now()
        self._health = replace(self._health, is_ok=False, error_code=code, error=error, failing_since=since)
        if was_code != code:
            # Once per kind of failure, not once per interval.
            _log.warning("forwarding.failed", code=code, error=error)
            await self._log_event(SiteEventKind.FORWARDING_FAILED, f"{code}: {error}")

    async def _succeeded(self) -> None:
        earlier, self._health = self._health, ForwardHealth(last_ok_at=self._clock.now())
        if earlier.failing_since is not None:
            since = to_text(earlier.failing_since)
            _log.info("forwarding.resumed", failing_since=since)
            await self._log_event(SiteEventKind.FORWARDING_RESUMED, f"after a failure since {since}")

    async def _log_event(self, kind: SiteEventKind, text: str) -> None:
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
