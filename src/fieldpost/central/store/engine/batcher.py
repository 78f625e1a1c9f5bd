"""Batching of small reads and writes from many callers.

Theory of operation. When a thousand sites reconnect at once, each needs a token lookup, a stored report, a read of its
mirror. One transaction each would queue for the store's few connections for longer than a site waits. Here, calls that
arrive while a batch runs form the next batch. A single call runs at once, so batching costs nothing at low load. A
batch starts after all its calls have arrived, so that no result is older than its call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from fieldpost.core.errors import Unavailable

K = TypeVar("K")
T = TypeVar("T")

SET_MAX = 500


class Batcher(Generic[K, T]):
    """`do` gets the waiting items in order of arrival, and returns one result for each, in the same order."""

    def __init__(self, do: Callable[[Sequence[K]], Awaitable[Sequence[T]]], set_max: int = SET_MAX) -> None:
        self._do = do
        self._set_max = set_max
        self._waiting: list[tuple[K, asyncio.Future[T]]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: K) -> T:
        """The result of `do` for this item, run in a batch with the other waiting ones."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="batcher")
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken = self._waiting[: self._set_max]
                del self._waiting[: self._set_max]
                await answer_all(self._do, [pair for pair in taken if not pair[1].done()])
        finally:
            self._running = None
            # Items are left only if this task was cancelled.
            for _, answer in self._waiting:
                answer.cancel()
            self._waiting.clear()


async def answer_all(
    do: Callable[[Sequence[K]], Awaitable[Sequence[T]]], taken: Sequence[tuple[K, asyncio.Future[T]]]
) -> None:
    """Run `do` once for all items and answer each; if that fails, run it for each item alone."""
    if not taken:
        return
    try:
        results = await do([item for item, _ in taken])
    except Unavailable as error:
        for _, answer in taken:
            _fail(answer, Unavailable(error.code, error.message, hint=error.hint))
    except Exception as error:
        if len(taken) == 1:
            _fail(taken[0][1], error)
            return
        # One bad item must not fail the others: run each on its own.
        for pair in taken:
            await answer_all(do, [pair])
    except BaseException:
        for _, answer in taken:
            answer.cancel()
        raise
    else:
        for (_, answer), result in zip(taken, results, strict=True):
            if not answer.done():
                answer.set_result(result)


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
