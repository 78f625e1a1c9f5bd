"""A look at the store that many share: it rests many times as long as it took, so that looking is never the load."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from fieldpost.clock import Clock

FRESH_S = 1.0
REST = 20.0
"""A look that took long is used for so many times as long."""

T = TypeVar("T")


class SharedRead(Generic[T]):
    """The last result of `look`, looked for anew when it is too old; whoever asks meanwhile waits for the same one."""

    def __init__(self, look: Callable[[], Awaitable[T]], clock: Clock, fresh_s: float = FRESH_S) -> None:
        self._look = look
        self._clock = clock
        self._fresh_s = fresh_s
        self._one_at_a_time = asyncio.Lock()
        self._seen: tuple[T, float] | None = None

    async def get(self) -> T:
        async with self._one_at_a_time:
            began = self._clock.monotonic()
            if self._seen is not None and began < self._seen[1]:
                return self._seen[0]
            result = await self._look()
            ended = self._clock.monotonic()
            self._seen = result, ended + max(self._fresh_s, REST * (ended - began))
            return result
