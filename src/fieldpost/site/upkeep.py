"""Upkeep of a site's buffer: deletes rows past their retention and maintains the reserve.

Only ended records are deleted, in small transactions, so that no script waits long; parked calls stay until a person
acts. Nothing else depends on this, and a sweep that fails is repeated.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import apsw
import structlog

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError
from fieldpost.core.sites.message import Category
from fieldpost.core.sites.site_event import SiteEventKind
from fieldpost.core.times import to_text
from fieldpost.site.buffer import command_log, event_log, keys, notifications, tracking
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.config.options import EventOptions, TrackingOptions

T = TypeVar("T")

INTERVAL_S = 60.0
BATCH = 1_000

_log = structlog.stdlib.get_logger("fieldpost.site")


class BufferUpkeep:
    """Sweeps one site's buffer every minute."""

    def __init__(
        self,
        buffer: Buffer,
        clock: Clock,
        *,
        tracking: TrackingOptions | None = None,
        events: EventOptions | None = None,
        may_execute: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_execute`: the standby of a pair deletes no records; it gets the leader's deletions."""
        self._may_execute = may_execute
        self._buffer = buffer
        self._clock = clock
        self._tracking = tracking or TrackingOptions()
        self._events = events or EventOptions()
        self._is_waiting_long = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Sweep until `stopping` is set."""
        stopped = asyncio.create_task(stopping.wait())
        try:
            while not stopping.is_set():
                await self._try_sweep()
                pause = asyncio.create_task(self._clock.sleep(INTERVAL_S))
                await asyncio.wait({pause, stopped}, return_when=asyncio.FIRST_COMPLETED)
                pause.cancel()
        finally:
            stopped.cancel()

    async def sweep(self) -> int:
        """Delete rows past their retention and maintain the reserve; returns how many rows were deleted."""
        now = self._clock.now()
        await asyncio.to_thread(self._buffer.return_free_pages)
        if not await asyncio.to_thread(self._buffer.keep_reserve):
            _log.warning("reserve.missing", hint="the site's disk is nearly full")
        deleted = 0
        records: list[Callable[[apsw.Cursor], int]] = [
            partial(tracking.purge, before=_before(now, self._tracking.retention_days), limit=BATCH),
            partial(keys.purge, before=_before(now, self._tracking.key_retention_days), limit=BATCH),
            partial(command_log.purge, before=_before(now, command_log.RETENTION_DAYS), limit=BATCH),
        ]
        trim = partial(
            event_log.trim,
            before=_before(now, self._events.retention_days),
            bytes_max=self._events.bytes_max,
            most=BATCH,
        )
        for step in (*(records if self._may_execute() else ()), trim):
            deleted += await self._repeat(step)
        await self._log_waiting(now)
        return deleted

    async def close(self) -> None:
        """There is nothing to close."""

    async def _try_sweep(self) -> None:
        try:
            await self.sweep()
        except FieldpostError as error:
            _log.warning("upkeep.failed", code=error.code, error=error.message)
        except Exception:
            _log.exception("upkeep.crashed")

    async def _repeat(self, step: Callable[[apsw.Cursor], int]) -> int:
        deleted = 0
        while (count := await asyncio.to_thread(self._buffer.write, step)) > 0:
            deleted += count
        return deleted

    async def _log_waiting(self, now: datetime) -> None:
        """Log once that notifications wait too long, and again only after the queue has recovered."""
        oldest = await asyncio.to_thread(self._buffer.read, notifications.oldest)
        was_waiting, self._is_waiting_long = self._is_waiting_long, False
        if oldest is None or (now - oldest).total_seconds() <= self._events.waiting_s:
            return
        self._is_waiting_long = True
        if not was_waiting:
            text = f"notifications have been waiting since {to_text(oldest)}"
            entry = event_log.event(SiteEventKind.WAITING_LONG, now, text, category=Category.NOTIFICATION)
            await asyncio.to_thread(self._buffer.write, event_log.append, [entry])


def _before(now: datetime, days: float) -> datetime:
    return now - timedelta(days=days)
