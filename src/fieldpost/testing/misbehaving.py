"""What the servers that misbehave on demand have in common: how an answer ends, and what it waits for."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from enum import Enum
from typing import Any, Protocol, Self


class Waitable(Protocol):
    """An `asyncio.Event`, a `Gate`, a `Tap`, or whatever else can be waited for."""

    def wait(self) -> Coroutine[Any, Any, object]: ...


class Ending(Enum):
    """What becomes of the connection after the answer."""

    STAY = "stay"
    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"


class Misbehaving(ABC):
    """A rule of a server, told step by step what to do."""

    def close(self) -> Self:
        """Close without an answer."""
        return self._do(is_silent=True, ending=Ending.CLOSE)

    def reset(self) -> Self:
        """Reset the connection (RST) without an answer."""
        return self._do(is_silent=True, ending=Ending.RESET)

    def hang(self) -> Self:
        """Never answer, until the client goes away."""
        return self._do(is_silent=True, ending=Ending.HANG)

    def then_close(self) -> Self:
        """Close after the answer."""
        return self._do(ending=Ending.CLOSE)

    def then_reset(self) -> Self:
        """Reset the connection right after the answer, which the client may then never see."""
        return self._do(ending=Ending.RESET)

    def then_hang(self) -> Self:
        """Answer, then say nothing any more."""
        return self._do(ending=Ending.HANG)

    def wait(self, event: Waitable) -> Self:
        """Answer only once this event is set."""
        return self._do(event=event)

    def delay(self, seconds: float) -> Self:
        """Answer after so many seconds of the server's clock."""
        return self._do(delay_s=seconds)

    @abstractmethod
    def _do(self, **changes: Any) -> Self:
        """Change what is done, by these fields of its act."""
