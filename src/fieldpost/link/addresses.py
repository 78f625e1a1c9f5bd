"""Which of central's addresses to use: the one that worked last, and the others when it does not.

They are tried in turn, the next one as soon as the one before it has failed, or has not answered for `STAGGER_S`; the
first to answer is used, and the rest are let go. So an address that is dead in the slow way, swallowing everything,
costs a few seconds once, and a slow line is still given the time that it needs at each of them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fieldpost.core.errors import Denied, FieldpostError, Unavailable
from fieldpost.link.endpoint import Endpoint

T = TypeVar("T")

STAGGER_S = 3.0


class NoWebSocket(Unavailable):
    """There is something that speaks HTTP, and no WebSocket can be had on this way to central."""

    def __init__(self, message: str) -> None:
        super().__init__("link.no_websocket", message)


class Addresses:
    """What a sender has learnt of central's addresses; one for each connection that it keeps."""

    def __init__(self) -> None:
        self._worked: str | None = None

    def prefer(self, endpoint: Endpoint) -> None:
        """This address worked: it is tried first next time."""
        self._worked = endpoint.url

    def avoid(self, endpoint: Endpoint) -> None:
        """The address in use answers no more: the next one of the endpoint's comes first next time."""
        first, *others = self.ordered(endpoint)
        self.prefer(others[0] if others else first)

    def ordered(self, endpoint: Endpoint) -> list[Endpoint]:
        """Each address by itself, in the order in which to try them."""
        each = endpoint.each()
        start = next((place for place, one in enumerate(each) if one.url == self._worked), 0)
        return each[start:] + each[:start]

    async def reach(
        self,
        endpoint: Endpoint,
        open_one: Callable[[Endpoint], Awaitable[T]],
        let_go: Callable[[T], Awaitable[None]],
    ) -> T:
        """What the first address to answer gave. When none does: Denied, NoWebSocket or Unavailable, saying why."""
        waiting = deque(self.ordered(endpoint))
        tasks: dict[asyncio.Task[T], Endpoint] = {}
        failures: list[tuple[Endpoint, FieldpostError]] = []
        try:
            while waiting or tasks:
                if waiting:
                    one = waiting.popleft()
                    tasks[asyncio.ensure_future(open_one(one))] = one
                done, _ = await asyncio.wait(
                    tasks, timeout=STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    try:
                        opened = task.result()
                    except FieldpostError as error:
                        failures.append((tasks.pop(task), error))
                    else:
                        self.prefer(tasks.pop(task))
                        return opened
            chosen, failure = _failure(failures)
            if isinstance(failure, NoWebSocket):
                self.prefer(chosen)
            raise failure
        finally:
            for task in tasks:
                task.cancel()
            for late in await asyncio.gather(*tasks, return_exceptions=True):
                if not isinstance(late, BaseException):
                    await let_go(late)


def _failure(failures: list[tuple[Endpoint, FieldpostError]]) -> tuple[Endpoint, FieldpostError]:
    """The most telling of them, with its address; of several addresses each is told."""
    for kind in (Denied, NoWebSocket):
        for one, error in failures:
            if isinstance(error, kind):
                return one, error
    one, first = failures[0]
    if len(failures) == 1:
        return one, first
    told = "; ".join(f"{each.url}: {error.message}" for each, error in failures)
    return one, Unavailable(first.code, f"none of central's {len(failures)} addresses can be used: {told}")
