"""One demo per folder. Its processes hold the lock with it, so that a free lock means that none of them is left."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from fieldpost.clock import Clock
from fieldpost.core.errors import Conflict

PAUSE_S = 0.1
PATIENCE_S = 7.0
"""Longer than processes take to end that a killed demo left behind."""


class DemoLock:
    """`async with DemoLock(…) as lock`; `lock.handle` is for the processes to keep open."""

    def __init__(self, folder: Path, clock: Clock, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._clock = clock
        self._say = say
        self.handle = -1

    async def __aenter__(self) -> Self:
        self.handle = os.open(self._folder / "demo.lock", os.O_RDWR | os.O_CREAT, 0o644)
        until = self._clock.monotonic() + PATIENCE_S
        try:
            if not self._take():
                self._say(f"A demo works in {self._folder}, or is just stopping; waiting for it …")
            while not self._take():
                if self._clock.monotonic() > until:
                    raise Conflict(
                        "demo.running",
                        f"another demo works in {self._folder}",
                        hint="stop it, or give --folder another folder",
                    )
                await self._clock.sleep(PAUSE_S)
        except BaseException:
            os.close(self.handle)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.handle)

    def _take(self) -> bool:
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
