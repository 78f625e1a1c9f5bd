"""Rules shared by the test servers: when to answer, and what happens to the connection afterwards."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from enum import Enum
from typing import Any, Protocol, Self


class PeerGone(Exception):
    """The client disconnected, or the server stops: nobody waits for an answer."""


async def wait_unless(ended: asyncio.Event, awaited: Coroutine[Any, Any, object]) -> None:
    """Wait for `awaited`. Raises PeerGone if `ended` is set first."""
    waiting, gone = asyncio.ensure_future(awaited), asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise PeerGone
        waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()


class Waitable(Protocol):
    """An `asyncio.Event`, a `Gate`, a `Tap` or another object with `wait`."""

    def wait(self) -> Coroutine[Any, Any, object]: ...


class Ending(Enum):
    """The state of the connection after the answer."""

    STAY = "stay"
    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"


class Misbehaving(ABC):
    """Base of the servers' rules; each method changes the reaction and returns the rule."""

    def __init__(self) -> None:
        self.hits = 0
        """How often the rule was applied."""
        self._is_withdrawn = False

    def withdraw(self) -> None:
        """Disable the rule."""
        self._is_withdrawn = True

    def raw(self, data: bytes) -> Self:
        """Send these bytes instead of an answer."""
        return self._do(raw=data)

    def close(self) -> Self:
        """Close without an answer."""
        return self._do(is_silent=True, ending=Ending.CLOSE)

    def reset(self) -> Self:
        """Reset the connection (RST) without an answer."""
        return self._do(is_silent=True, ending=Ending.RESET)

    def hang(self) -> Self:
        """Never answer; wait until the client disconnects."""
        return self._do(is_silent=True, ending=Ending.HANG)

    def then_close(self) -> Self:
        """Close after the answer."""
        return self._do(ending=Ending.CLOSE)

    def then_reset(self) -> Self:
        """Reset the connection right after the answer, which the client may not see."""
        return self._do(ending=Ending.RESET)

    def then_hang(self) -> Self:
        """Answer, then send nothing more."""
        return self._do(ending=Ending.HANG)

    def wait(self, event: Waitable) -> Self:
        """Answer after this event is set."""
        return self._do(event=event)

    def delay(self, seconds: float) -> Self:
        """Answer after this many seconds of the server's clock."""
        return self._do(delay_s=seconds)

    @abstractmethod
    def _do(self, **changes: Any) -> Self:
        """Change these fields of the reaction."""
