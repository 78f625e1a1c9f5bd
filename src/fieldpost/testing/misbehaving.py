"""Rules shared by the test servers: when to answer, and what happens to the connection afterwards."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Protocol, Self, TypeVar


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """The handling of one message. The defaults are those of a correct server."""

    raw: bytes | None = None
    is_silent: bool = False
    ending: Ending = Ending.STAY
    event: Waitable | None = None
    delay_s: float = 0


E = TypeVar("E")
R = TypeVar("R", bound=Reaction)


class Misbehaving(ABC, Generic[E, R]):
    """Base of the servers' rules; each method changes the reaction and returns the rule."""

    def __init__(self, behave: R) -> None:
        self.hits = 0
        """How often the rule was applied."""
        self._behave = behave
        self._reaction: R | None = None
        self._is_withdrawn = False

    def take(self, event: E) -> R | None:
        """The reaction to this event if the rule matches; counts as one use."""
        if self._reaction is None or self._is_withdrawn or not self._applies(event):
            return None
        self.hits += 1
        return self._reaction

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

    def _do(self, **changes: Any) -> Self:
        """Change these fields of the reaction."""
        self._reaction = replace(self._reaction or self._behave, **changes)
        return self

    @abstractmethod
    def _applies(self, event: E) -> bool:
        """Whether the rule matches this event and is not used up."""


class Rules(Generic[E, R]):
    """All rules of a server, in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: list[Misbehaving[E, R]] = []

    def add(self, rule: Misbehaving[E, R]) -> None:
        self._rules.append(rule)

    def withdraw_all(self) -> None:
        for rule in self._rules:
            rule.withdraw()
        self._rules = []

    def reaction(self, event: E) -> R | None:
        """The reaction of the first rule that matches and is not used up; None for a correct server's."""
        return next((reaction for rule in self._rules if (reaction := rule.take(event)) is not None), None)
