"""The choice among central's addresses: first the one that worked last, then the others.

Addresses are tried in turn. The next attempt starts when the previous one fails or has not answered for `STAGGER_S`;
the first address to answer is used and the other attempts are closed. An address that swallows packets costs a few
seconds once, while a slow line still gets the full time at every address.
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
    """The address answers HTTP but does not accept a WebSocket."""

    def __init__(self, message: str) -> None:
        super().__init__("link.no_websocket", message)


class Addresses:
    """The order of central's addresses for one connection of a sender."""

    def __init__(self) -> None:
        self._worked: str | None = None

    def prefer(self, endpoint: Endpoint) -> None:
        """Try this address first next time, because it worked."""
        self._worked = endpoint.url

    def avoid(self, endpoint: Endpoint) -> None:
        """Try the next address of the endpoint first, because the current one stopped answering."""
        first, *others = self.ordered(endpoint)
        self.prefer(others[0] if others else first)

    def ordered(self, endpoint: Endpoint) -> list[Endpoint]:
        """One endpoint per address, in the order in which to try them."""
        each = endpoint.each()
        start = next((place for place, one in enumerate(each) if one.url == self._worked), 0)
        return each[start:] + each[:start]

    async def reach(
        self,
        endpoint: Endpoint,
        open_one: Callable[[Endpoint], Awaitable[T]],
        close_one: Callable[[T], Awaitable[None]],
    ) -> T:
        """Connect to the first address that answers; Denied, NoWebSocket or Unavailable if none does."""
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
                    await close_one(late)


def _failure(failures: list[tuple[Endpoint, FieldpostError]]) -> tuple[Endpoint, FieldpostError]:
    """The most specific failure with its address; for several addresses the message lists each failure."""
    for kind in (Denied, NoWebSocket):
        for one, error in failures:
            if isinstance(error, kind):
                return one, error
    one, first = failures[0]
    if len(failures) == 1:
        return one, first
    listed = "; ".join(f"{each.url}: {error.message}" for each, error in failures)
    return one, Unavailable(first.code, f"none of central's {len(failures)} addresses can be used: {listed}")
