"""Waiting for a condition of a server without polling."""

import asyncio
from collections.abc import Callable


class Waiters:
    """Conditions awaited on the server's loop; the server calls `wake` on every change."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def wake(self) -> None:
        """Wake the waiters whose condition is true now."""
        for is_so, waiter in self._waiting:
            if not waiter.done() and is_so():
                waiter.set_result(None)

    async def until(self, is_so: Callable[[], bool], timeout_s: float, what: str, seen: Callable[[], object]) -> None:
        """Wait until `is_so` returns True. Raises TimeoutError with the text of `seen`."""
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
