"""Small questions and notes of many callers, put to the store in sets.

Theory of operation. When a thousand sites come back at once, each wants its token looked up, its report kept, its
mirror asked after. A transaction for each would stand in line for the store's few connections for longer than a site
waits. Here, whoever comes while a set is under way joins the next one. Whoever is alone goes at once, so that it costs
nothing where little happens; and what is done for a caller began after he came, so that no answer is older than its
question.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from fieldpost.core.errors import Unavailable

K = TypeVar("K")
T = TypeVar("T")

SET_MAX = 500


class Batcher(Generic[K, T]):
    """`do` is given all that wait, in the order in which they came, and answers each in its place."""

    def __init__(self, do: Callable[[Sequence[K]], Awaitable[Sequence[T]]], set_max: int = SET_MAX) -> None:
        self._do = do
        self._set_max = set_max
        self._waiting: list[tuple[K, asyncio.Future[T]]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, what: K) -> T:
        """What `do` says of this one, done together with whatever else waits."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((what, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="together")
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken = self._waiting[: self._set_max]
                del self._waiting[: self._set_max]
                await self._answer([pair for pair in taken if not pair[1].done()])
        finally:
            self._running = None
            # Only when this task was cancelled is anybody left.
            for _, answer in self._waiting:
                answer.cancel()
            self._waiting.clear()

    async def _answer(self, taken: list[tuple[K, asyncio.Future[T]]]) -> None:
        if not taken:
            return
        try:
            results = await self._do([what for what, _ in taken])
        except Unavailable as error:
            for _, answer in taken:
                _fail(answer, Unavailable(error.code, error.message, hint=error.hint))
        except Exception as error:
            if len(taken) == 1:
                _fail(taken[0][1], error)
                return
            # One of them may spoil it for the others: each for itself.
            for pair in taken:
                await self._answer([pair])
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
