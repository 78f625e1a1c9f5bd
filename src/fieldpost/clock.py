"""The clock: the only module that reads the wall clock.

Rules take `now` as an argument; loops take a `Clock`. Wall-clock time is for people and for due times, monotonic time
for durations inside a process, because the wall clock may step. Socket timeouts and waits for file locks use monotonic
time directly.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The time source of a loop; implemented by `SystemClock` and `fieldpost.testing.ManualClock`."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never decrease, for durations only."""

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds of monotonic time."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # here, because scripts at a site need the clock, but no event loop

        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        """Blocking sleep for commands. An event loop made only for this would warn when interrupted during set-up."""
        time.sleep(seconds)
