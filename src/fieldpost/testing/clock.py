"""A clock that a test advances.

Times are whole microseconds internally, so that ten steps of 0.1 s are exactly one second and wake a sleeper due then.
`advance` is one jump, as after a pause of the whole process: sleepers wake in the order in which they are due, and all
see the time at the end of the jump. To run a loop n times, advance n times with `wait_sleepers` in between.
"""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_MICROSECOND = timedelta(microseconds=1)


class ManualClock:
    """A `Clock` controlled by a test. Any thread may advance it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, 8, 0, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError("start must be an aware datetime")
        self._start = start.astimezone(UTC)
        self._elapsed_us = 0
        self._stepped_us = 0
        self._lock = threading.Lock()
        self._sleepers: list[_Sleeper] = []
        self._watchers: list[_Watcher] = []

    def now(self) -> datetime:
        return self._start + (self._elapsed_us + self._stepped_us) * _MICROSECOND

    def monotonic(self) -> float:
        return self._elapsed_us / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            sleeper = _Sleeper(self._elapsed_us + _microseconds(seconds), woken)
            self._sleepers.append(sleeper)
            self._notify_watchers()
        try:
            await woken
        finally:
            with self._lock:
                if sleeper in self._sleepers:
                    self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        """Advance both times and wake the sleepers that are due, in order of their due times."""
        moved_us = _microseconds(seconds)
        if moved_us < 0:
            raise ValueError("seconds must not be negative; use step() to move the wall clock back")
        with self._lock:
            self._elapsed_us += moved_us
            due = [sleeper for sleeper in self._sleepers if sleeper.due_us <= self._elapsed_us]
            self._sleepers = [sleeper for sleeper in self._sleepers if sleeper.due_us > self._elapsed_us]
        # The sort is stable: among sleepers due at the same time, the first to sleep wakes first.
        for sleeper in sorted(due, key=lambda sleeper: sleeper.due_us):
            _resolve(sleeper.woken)

    def step(self, seconds: float) -> None:
        """Move only the wall clock, forwards or back, as when it is set; sleepers are not affected."""
        self._stepped_us += _microseconds(seconds)

    @property
    def sleeping(self) -> int:
        """The number of tasks that sleep on this clock."""
        return len(self._sleepers)

    def next_wake_in_s(self) -> float | None:
        """Seconds until the next sleeper is due; None without sleepers."""
        with self._lock:
            if not self._sleepers:
                return None
            return (min(sleeper.due_us for sleeper in self._sleepers) - self._elapsed_us) / 1_000_000

    async def wait_sleepers(self, count: int = 1, timeout_s: float = 30) -> None:
        """Wait until at least `count` tasks sleep on this clock. Raises TimeoutError (in real time)."""
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watcher = _Watcher(count, reached)
        with self._lock:
            self._watchers.append(watcher)
            self._notify_watchers()
        try:
            async with asyncio.timeout(timeout_s):
                await reached
        except TimeoutError:
            raise TimeoutError(f"waited {timeout_s:g} s for {count} sleeping tasks; {self.sleeping} sleep") from None
        finally:
            with self._lock:
                self._watchers.remove(watcher)

    def _notify_watchers(self) -> None:
        for watcher in self._watchers:
            if len(self._sleepers) >= watcher.count:
                _resolve(watcher.reached)


@dataclass(frozen=True, slots=True, eq=False)
class _Sleeper:
    due_us: int
    woken: asyncio.Future[None]


@dataclass(frozen=True, slots=True, eq=False)
class _Watcher:
    count: int
    reached: asyncio.Future[None]


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _resolve(future: asyncio.Future[None]) -> None:
    loop = future.get_loop()
    try:
        is_ours = asyncio.get_running_loop() is loop
    except RuntimeError:
        is_ours = False
    if is_ours:
        _set(future)
    else:
        loop.call_soon_threadsafe(_set, future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
