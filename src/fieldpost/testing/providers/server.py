"""The base of the fake providers: an HTTP server that checks each request as the provider does and keeps the copies.

    async with FakeTelegram("123:abc") as telegram:
        telegram.on().answer(502).times(2)            # any rule of HttpServer; without one the provider answers
        ...
        assert telegram.copies[0].text.startswith("Pump 3")

A request that breaks a limit gets the provider's own answer and leaves no copy.
"""

import json
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fieldpost.clock import Clock, SystemClock
from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.http.server import HttpServer

_ID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ProviderCopy:
    """One message that the provider accepted."""

    target: str
    notification_id: str
    """The id that the message carries; empty if it carries none."""
    text: str
    """Subject and body as the receiver reads them."""
    message: Mapping[str, Any]
    """The request as the provider understood it."""


class RequestLimit:
    """At most `count` requests of one key in any `period`, by the server's clock."""

    def __init__(self, count: int, period: timedelta) -> None:
        self._count = count
        self._period_s = period.total_seconds()
        self._taken: dict[str, deque[float]] = {}

    def wait_s(self, key: str, now: float) -> float:
        """Take a place for this request and return 0, or return the seconds until the next place is free."""
        taken = self._taken.setdefault(key, deque())
        while taken and now - taken[0] >= self._period_s:
            taken.popleft()
        if len(taken) >= self._count:
            return self._period_s - (now - taken[0])
        taken.append(now)
        return 0


class ProviderServer(HttpServer, ABC):
    """A provider on loopback. Rules added by `on` come first."""

    def __init__(
        self,
        *,
        is_limited: bool = True,
        on_copy: Callable[[ProviderCopy], None] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        """`is_limited`: whether the provider's limits on the number of requests apply. `on_copy` gets each copy before
        its request is answered, and then the server does not keep it. `options` are those of `HttpServer`."""
        super().__init__(on_request=self._react, clock=clock, **options)
        self._is_limited = is_limited
        self._on_copy = on_copy
        self._time = clock or SystemClock()
        self.copies: list[ProviderCopy] = []
        self.refused: list[HttpReaction] = []
        """The answers to requests that broke a rule of the provider."""

    @abstractmethod
    def answer(self, request: ReceivedRequest) -> HttpReaction | tuple[ProviderCopy, HttpReaction]:
        """The provider's answer, with the copy if it accepts the message."""

    def ids(self, target: str | None = None) -> Sequence[str]:
        """The ids of the accepted copies, in order; of one target if given."""
        return [copy.notification_id for copy in self.copies if target in (None, copy.target)]

    def wait_s(self, limit: RequestLimit, key: str = "") -> float:
        """How long the sender of this request must wait by a limit; 0 if it is in time."""
        return limit.wait_s(key, self._time.monotonic()) if self._is_limited else 0

    def _react(self, request: ReceivedRequest) -> HttpReaction:
        answered = self.answer(request)
        if isinstance(answered, HttpReaction):
            if answered.status >= 400:
                self.refused.append(answered)
            return answered
        copy, reaction = answered
        (self._on_copy or self.copies.append)(copy)
        return reaction


def id_in(body: bytes | str) -> str:
    """The last notification id in a request; empty if there is none."""
    found = _ID.findall(body.encode() if isinstance(body, str) else body)
    return found[-1].decode() if found else ""


def json_of(request: ReceivedRequest) -> dict[str, Any] | None:
    """The JSON object in a request; None if it is not one."""
    try:
        said = json.loads(request.body)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def json_reaction(status: int, said: object, headers: Mapping[str, str] | None = None) -> HttpReaction:
    """An answer in JSON."""
    typed = {"Content-Type": "application/json", **(headers or {})}
    return HttpReaction(status=status, body=json.dumps(said).encode(), headers=typed)
