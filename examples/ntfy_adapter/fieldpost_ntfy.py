"""An adapter that sends notifications to topics of an ntfy server, as a third party would write it.

An adapter is a function from an envelope to an outcome. Every external result is an outcome; an exception is a bug. The
adapter keeps no state that changes an outcome: connections belong to `outbound`, which also blocks forbidden addresses.
"""

import re
import time
from collections.abc import Mapping
from email.header import Header

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Held, Outcome, PermanentFailure, Uncertain, fold
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.url import check_url

TOPIC = re.compile(r"[A-Za-z0-9_-]{1,64}")
SETTINGS = ("url", "token")


class NtfyAdapter:
    """Posts a notification to each topic of the list."""

    type = "ntfy"
    secrets = frozenset({"token"})

    def __init__(self, *, outbound: Outbound | None = None, deadline_s: float = 30.0) -> None:
        """Central passes its own `outbound`, because the constructor has this keyword."""
        self.deadline_s = deadline_s
        self._outbound = outbound or Outbound()
        self._is_outbound_ours = outbound is None

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        for name in settings:
            if name not in SETTINGS:
                raise InvalidInput("settings.unknown", f"an ntfy channel has no setting {name}", field=name)
        # An administrator sets the URL, so private addresses are allowed.
        url = check_url(settings.get("url"), "admin")
        token = settings.get("token")
        if token is not None and not (isinstance(token, Secret) and re.fullmatch(r"[!-~]+", token.reveal())):
            raise InvalidInput("settings.invalid", "token must be printable ASCII without spaces", field="token")
        return {**settings, "url": str(url).rstrip("/")}

    def check_target(self, address: str) -> str:
        if not TOPIC.fullmatch(address):
            raise InvalidInput("topic.invalid", "a topic has 1 to 64 letters, digits, - or _", field="address")
        return address

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            settings = self.check_settings(envelope.settings)
        except InvalidInput as error:
            return PermanentFailure(f"the channel's settings are invalid: {error.message}", phase="settings")
        until = time.monotonic() + self.deadline_s * 0.95
        results = dict.fromkeys(envelope.targets, Target("", TargetStatus.DUE, "not tried"))
        reached: list[str] = []
        for topic in results:
            if reached:  # if this node dies now, these topics get no second copy
                await envelope.record_reached(reached)
                reached = []
            try:
                status = await self._post(settings, topic, envelope, until - time.monotonic())
            except Blocked as error:
                return Held(str(error), phase="connect")
            except NoAnswer as error:
                if error.is_sent:
                    # The server may have received it: the result is uncertain.
                    results[topic] = Target(topic, TargetStatus.DUE, error.reason)
                    return Uncertain(f"{topic}: {error.reason}", _named(results), phase="answer")
                return _channel_failure(results, error.reason)
            match status:
                case 401 | 403:
                    return _channel_failure(results, f"the server denied access ({status})")
                case 408 | 425 | 429:
                    results[topic] = Target(topic, TargetStatus.DUE, f"answered {status}")
                case _ if 200 <= status < 300:
                    results[topic] = Target(topic, TargetStatus.DELIVERED)
                    reached.append(topic)
                case _ if 300 <= status < 500:
                    results[topic] = Target(topic, TargetStatus.FAILED, f"answered {status}")
                case _:
                    results[topic] = Target(topic, TargetStatus.DUE, f"answered {status}")
        return fold(_named(results), phase="answer")

    async def close(self) -> None:
        if self._is_outbound_ours:
            await self._outbound.close()

    async def _post(self, settings: Mapping[str, object], topic: str, envelope: Envelope, timeout_s: float) -> int:
        record = envelope.transcript or (lambda _: None)
        headers = {
            "Title": Header(envelope.subject, "utf-8", maxlinelen=10_000).encode(),
            "Content-Type": "text/plain; charset=utf-8",
            # The same at every attempt, so that a receiver can recognise a duplicate.
            "X-Fieldpost-Id": envelope.notification_id,
        }
        if isinstance(token := settings.get("token"), Secret):
            headers["Authorization"] = f"Bearer {token.reveal()}"
        url = check_url(f"{settings['url']}/{topic}", "admin")
        # Point of no return: check that the claim is still valid.
        envelope.gate()
        record(f"> POST {url}")
        answer = await self._outbound.admin_http.request(
            "POST", url, headers=headers, body=envelope.body.encode(), timeout_s=max(timeout_s, 0.01)
        )
        record(f"< {answer.status}")
        return answer.status


def _channel_failure(results: Mapping[str, Target], reason: str) -> Outcome:
    """Held if no target has a result yet; otherwise keep the results of the finished targets."""
    if any(target.status is not TargetStatus.DUE for target in results.values()):
        return fold(_named(results), phase="connect")
    return Held(reason, phase="connect")


def _named(results: Mapping[str, Target]) -> tuple[Target, ...]:
    return tuple(Target(topic, result.status, result.error) for topic, result in results.items())
