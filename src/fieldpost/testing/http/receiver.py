"""A receiver of webhooks that misbehaves on demand, for each subscription, and verifies every request it gets.

    async with WebhookReceiver({"billing": secret}) as receiver:
        receiver.misbehave("billing", 503)            # until further notice
        ...                                           # something delivers to receiver.url("billing")
        receiver.behave("billing")
        await receiver.accepted(3, "billing")
        assert receiver.second_copies("billing") == []

Each subscription has a path of its own, so that one receiver can stand for a thousand. A request whose signature is not
valid is answered with 401 and listed in `forged`.
"""

from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from fieldpost.clock import SystemClock
from fieldpost.core.events.signature import InvalidWebhook, check_signing_secret, verify
from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from fieldpost.testing.http.server import HttpServer
from fieldpost.testing.misbehaving import Ending

HANG = "hang"
RESET = "reset"


class WebhookReceiver:
    """Receivers of many subscriptions on one loopback server."""

    def __init__(self, secrets: Mapping[str, str], **options: Any) -> None:
        """`secrets` are the signing secrets by name of the subscription; `options` are those of `HttpServer`."""
        self._secrets = {name: check_signing_secret(secret) for name, secret in secrets.items()}
        self._behaviour: dict[str, int | str] = {}
        self._accepted: dict[str, list[str]] = {name: [] for name in secrets}
        self.forged: list[ReceivedRequest] = []
        """Requests whose signature is not valid."""
        self.server = HttpServer(on_request=self._react, **options)

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.server.stop()

    def url(self, name: str) -> str:
        """The URL of a subscription."""
        return f"{self.server.url}/{name}"

    def add(self, name: str, secret: str) -> None:
        """Receive for another subscription, or with another secret."""
        self._secrets[name] = check_signing_secret(secret)
        self._accepted.setdefault(name, [])

    def misbehave(self, name: str, how: int | str) -> None:
        """Answer with this status, `hang` without an answer, or `reset` the connection, until `behave`."""
        if how not in (HANG, RESET) and not (type(how) is int and 100 <= how <= 599):
            raise ValueError(f"how must be a status, {HANG!r} or {RESET!r}, got {how!r}")
        self._behaviour[name] = how

    def behave(self, name: str) -> None:
        """Answer 200 again."""
        self._behaviour.pop(name, None)

    def ids(self, name: str) -> list[str]:
        """The ids of accepted webhooks, in order; second copies too."""
        return list(self._accepted[name])

    def second_copies(self, name: str) -> list[str]:
        """The ids that were accepted more than once."""
        return [webhook_id for webhook_id, count in Counter(self._accepted[name]).items() if count > 1]

    async def accepted(self, count: int, name: str, *, timeout_s: float = 30) -> list[str]:
        """Wait until this many webhooks of a subscription were accepted; their ids. Raises TimeoutError."""
        await self.server.until(
            lambda: len(self._accepted[name]) >= count, timeout_s=timeout_s, what=f"{count} webhooks of {name}"
        )
        return self.ids(name)

    def _react(self, request: ReceivedRequest) -> HttpReaction:
        name = request.path.removeprefix("/")
        if name not in self._secrets:
            return HttpReaction(status=404)
        match self._behaviour.get(name):
            case "hang":
                return HttpReaction(is_silent=True, ending=Ending.HANG)
            case "reset":
                return HttpReaction(is_silent=True, ending=Ending.RESET)
            case int() as status:
                return HttpReaction(status=status)
            case _:
                return self._accept(name, request)

    def _accept(self, name: str, request: ReceivedRequest) -> HttpReaction:
        try:
            verified = verify([self._secrets[name]], request.headers, request.body, SystemClock().now())
        except InvalidWebhook as error:
            self.forged.append(request)
            return HttpReaction(status=401, body=error.message.encode())
        self._accepted[name].append(verified.webhook_id)
        return HttpReaction()
