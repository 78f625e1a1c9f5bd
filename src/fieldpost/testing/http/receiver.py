"""Receivers of webhooks that misbehave on demand, one per subscription, and verify every request they get.

    async with WebhookReceiver({"billing": secret}) as receiver:
        receiver.on("billing").answer(503, headers={"Retry-After": "60"}).times(2)
        ...                                           # something delivers to receiver.url("billing")
        await receiver.accepted(3, "billing")
        assert receiver.second_copies("billing") == []
        assert receiver.forged == []

Each subscription has its own path and its own rules, so one server can act as thousands of receivers. `rules.py`
documents the rules of `on`. A request is verified before any rule applies; if its signature is not valid, it is
answered with 401 and listed in `forged`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from fieldpost.clock import Clock, SystemClock
from fieldpost.core.events.signature import InvalidWebhook, check_signing_secret, verify
from fieldpost.core.secret import Secret
from fieldpost.testing.http.rules import HttpReaction, HttpRule, ReceivedRequest
from fieldpost.testing.http.server import HttpServer
from fieldpost.testing.misbehaving import Rules


@dataclass(frozen=True, slots=True)
class ReceivedWebhook:
    """One request with a valid signature."""

    name: str
    webhook_id: str
    at: datetime
    """By the receiver's clock."""
    status: int | None
    """The status of the answer; None if it hung, was cut off or was not HTTP."""
    request: ReceivedRequest

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class WebhookReceiver:
    """Receivers of many subscriptions on one loopback server."""

    def __init__(self, secrets: Mapping[str, str] | None = None, *, clock: Clock | None = None, **options: Any) -> None:
        """`secrets` are the signing secrets by name of the subscription; `options` are those of `HttpServer`.

        Timestamps are verified by `clock`.
        """
        self._clock = clock or SystemClock()
        self._secrets: dict[str, Secret] = {}
        self._rules: dict[str, Rules[ReceivedRequest, HttpReaction]] = {}
        self._received: dict[str, list[ReceivedWebhook]] = {}
        self.forged: list[ReceivedRequest] = []
        """Requests whose signature is not valid."""
        self.server = HttpServer(on_request=self._react, clock=clock, **options)
        for name, secret in (secrets or {}).items():
            self.add(name, secret)

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.server.__aexit__(kind, error, trace)

    def url(self, name: str, host: str | None = None) -> str:
        """The URL of a subscription; by this host name if it resolves to the server's address."""
        return f"http://{host or self.server.host}:{self.server.port}/{name}"

    def add(self, name: str, secret: str) -> None:
        """Receive for another subscription, or with another secret."""
        self._secrets[name] = check_signing_secret(secret)
        self._received.setdefault(name, [])
        self._rules.setdefault(name, Rules())

    def secret(self, name: str) -> str:
        """The signing secret of a subscription."""
        return self._secrets[name].reveal()

    def on(self, name: str) -> HttpRule:
        """Add a rule for the requests of one subscription: `receiver.on("billing").hang()`."""
        rule = HttpRule(None, None)
        self._rules[name].add(rule)
        return rule

    def behave(self, *names: str) -> None:
        """Withdraw the rules of these subscriptions, or of all: they answer 200 again."""
        for name in names or self._rules:
            self._rules[name].withdraw_all()

    def webhooks(self, name: str) -> list[ReceivedWebhook]:
        """All requests of a subscription with a valid signature, accepted or not, in order."""
        return list(self._received[name])

    def ids(self, name: str) -> list[str]:
        """The ids of accepted webhooks, in order; second copies too."""
        return [one.webhook_id for one in self._received[name] if one.is_accepted]

    def second_copies(self, name: str) -> list[str]:
        """The ids that were sent again after they had been accepted. A copy after a failed try is not one of them."""
        accepted: set[str] = set()
        copies = []
        for one in self._received[name]:
            if one.webhook_id in accepted:
                copies.append(one.webhook_id)
            elif one.is_accepted:
                accepted.add(one.webhook_id)
        return copies

    async def accepted(self, count: int, name: str, *, timeout_s: float = 30) -> list[str]:
        """Wait until this many webhooks of a subscription were accepted; their ids. Raises TimeoutError."""
        what = f"{count} webhooks of {name}"
        await self.server.until(lambda: len(self.ids(name)) >= count, timeout_s=timeout_s, what=what)
        return self.ids(name)

    async def received(self, count: int, name: str, *, timeout_s: float = 30) -> list[ReceivedWebhook]:
        """Wait for this many requests of a subscription, answered or not. Raises TimeoutError."""
        what = f"{count} requests of {name}"
        await self.server.until(lambda: len(self._received[name]) >= count, timeout_s=timeout_s, what=what)
        return self.webhooks(name)

    def _react(self, request: ReceivedRequest) -> HttpReaction:
        name = request.path.removeprefix("/")
        if name not in self._secrets:
            return HttpReaction(status=404)
        try:
            verified = verify([self._secrets[name]], request.headers, request.body, self._clock.now())
        except InvalidWebhook as error:
            self.forged.append(request)
            return HttpReaction(status=401, body=error.message.encode())
        reaction = self._rules[name].reaction(request) or HttpReaction()
        status = None if reaction.is_silent or reaction.raw is not None else reaction.status
        now = self._clock.now()
        self._received[name].append(ReceivedWebhook(name, verified.webhook_id, now, status, request))
        return reaction
