"""Whoever waits until a server has seen something: what is seen wakes him, no clock does."""

import asyncio
from collections.abc import Callable


class Waiters:
    """They wait on the server's loop; the server says when anything has changed."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def wake(self) -> None:
        """Wake those who wait for what is now so."""
        for is_so, waiter in self._waiting:
            if not waiter.done() and is_so():
                waiter.set_result(None)

    async def until(self, is_so: Callable[[], bool], timeout_s: float, what: str, seen: Callable[[], object]) -> None:
        """Return once it is so. Raises TimeoutError that tells what was `seen`."""
        if is_so():
            return
        entry = (is_so, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await entry[1]
        except TimeoutError:
            raise TimeoutError(f"waited {timeout_s:g} s for {what}; {seen()}") from None
        finally:
            self._waiting.remove(entry)
