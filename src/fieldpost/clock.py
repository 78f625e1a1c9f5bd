"""The clock: the only module that reads the time or sleeps.

Rules take `now` as an argument; loops take a `Clock`. A wall-clock time is for people and for due times, a
monotonic one for durations inside a process, since the wall clock may step.
"""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a loop needs of time; `fieldpost.testing.ManualClock` is the other implementation."""

    def now(self) -> datetime:
        """The time in UTC, aware."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations only."""

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds of monotonic time."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        """The same for a command, which has no loop: one made for this alone may be caught half made by an interrupt,
        and complains."""
        time.sleep(seconds)
