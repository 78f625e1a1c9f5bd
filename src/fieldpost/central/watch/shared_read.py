"""A query whose result many callers share; it rests for many times its duration, so that it never becomes a load."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from fieldpost.clock import Clock

FRESH_S = 1.0
REST = 20.0
"""The result of a query is used for this many times its duration."""

T = TypeVar("T")


class SharedRead(Generic[T]):
    """The last result of `query`, refreshed when it is too old; callers in the meantime wait for the same refresh."""

    def __init__(self, query: Callable[[], Awaitable[T]], clock: Clock, fresh_s: float = FRESH_S) -> None:
        self._query = query
        self._clock = clock
        self._fresh_s = fresh_s
        self._lock = asyncio.Lock()
        self._last: tuple[T, float] | None = None

    async def get(self) -> T:
        async with self._lock:
            started = self._clock.monotonic()
            if self._last is not None and started < self._last[1]:
                return self._last[0]
            result = await self._query()
            ended = self._clock.monotonic()
            self._last = result, ended + max(self._fresh_s, REST * (ended - started))
            return result
