"""One demo per folder. The demo's processes inherit the lock: a free lock means that none of them is left."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from fieldpost.clock import Clock
from fieldpost.core.errors import Conflict
from fieldpost.file_lock import FileLock

POLL_S = 0.1
PATIENCE_S = 7.0
"""Longer than the processes of a killed demo take to exit."""


class DemoLock:
    """`async with DemoLock(…) as lock`; `lock.handle` is the descriptor for the processes to inherit."""

    def __init__(self, folder: Path, clock: Clock, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._clock = clock
        self._say = say
        self._lock = FileLock(folder / "demo.lock")

    @property
    def handle(self) -> int:
        return self._lock.fileno()

    async def __aenter__(self) -> Self:
        until = self._clock.monotonic() + PATIENCE_S
        if self._lock.acquire():
            return self
        self._say(f"Another demo is running or stopping in {self._folder}; waiting for it …")
        while not self._lock.acquire():
            if self._clock.monotonic() > until:
                raise Conflict(
                    "demo.running",
                    f"another demo is running in {self._folder}",
                    hint="stop it, or give --folder another folder",
                )
            await self._clock.sleep(POLL_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
