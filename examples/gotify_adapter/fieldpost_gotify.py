"""An adapter that sends notifications to applications of a Gotify server, as a third party would write it.

An adapter is a function from an envelope to an outcome. Every external result is an outcome; an exception is a bug. The
adapter keeps no state that changes an outcome: connections belong to `outbound`, which also blocks forbidden addresses.

Each application of a Gotify server has a token of its own. So a target is a label, and the token is its secret.
"""

import json
import re
import time
from collections.abc import Mapping

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Held, Outcome, PermanentFailure, Uncertain, fold
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Severity, Target, TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.outbound import Outbound
from fieldpost.outbound.url import check_url

LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
TOKEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
PRIORITIES = {Severity.INFO: 2, Severity.WARNING: 5, Severity.ERROR: 7, Severity.CRITICAL: 10}


class GotifyAdapter:
    """Posts a notification to each application of the list."""

    type = "gotify"
    secrets: frozenset[str] = frozenset()
    target_secret_name = "application token"
    has_own_urls = False

    def __init__(self, *, outbound: Outbound | None = None, deadline_s: float = 30.0) -> None:
        """Central passes its own `outbound`, because the constructor has this keyword."""
        self.deadline_s = deadline_s
        self._outbound = outbound or Outbound()
        self._is_outbound_ours = outbound is None

    def check_settings(self, settings: Mapping[str, object]) -> dict[str, object]:
        for name in settings:
            if name != "url":
                raise InvalidInput("settings.unknown", f"a gotify channel has no setting {name}", field=name)
        # An administrator sets the URL, so private addresses are allowed.
        return {"url": str(check_url(settings.get("url"), "admin")).rstrip("/")}

    def check_target(self, address: str) -> str:
        if not LABEL.fullmatch(address):
            raise InvalidInput("label.invalid", "a label has 1 to 64 letters, digits, - or _", field="address")
        return address

    def check_target_secret(self, secret: Secret) -> Secret:
        if not TOKEN.fullmatch(secret.reveal()):
            raise InvalidInput("token.invalid", "a token has 1 to 64 letters, digits, ., - or _", field="secret")
        return secret

    def target_key(self, address: str) -> str:
        return address

    async def deliver(self, envelope: Envelope) -> Outcome:
        try:
            settings = self.check_settings(envelope.settings)
        except InvalidInput as error:
            return PermanentFailure(f"the channel's settings are invalid: {error.message}", phase="settings")
        until = time.monotonic() + self.deadline_s * 0.95
        results = {label: Target(label, TargetStatus.DUE, "not tried") for label in envelope.targets}
        reached: list[Target] = []
        for label in envelope.targets:
            if reached:  # if this node dies now, these applications get no second copy
                await envelope.record_reached(reached)
                reached = []
            try:
                status = await self._post(settings, label, envelope, until - time.monotonic())
            except Blocked as error:
                return Held(str(error), phase="connect")
            except NoAnswer as error:
                if error.is_sent:
                    # The server may have received it: the result is uncertain.
                    results[label] = Target(label, TargetStatus.DUE, error.reason)
                    return Uncertain(f"{label}: {error.reason}", tuple(results.values()), phase="answer")
                return _channel_failure(results, error.reason)
            match status:
                case _ if 200 <= status < 300:
                    results[label] = Target(label, TargetStatus.DELIVERED)
                    reached.append(results[label])
                case 408 | 429:
                    results[label] = Target(label, TargetStatus.DUE, f"answered {status}")
                case _ if 300 <= status < 500:
                    # 401 and 403 too: the token is the target's.
                    results[label] = Target(label, TargetStatus.FAILED, f"answered {status}")
                case _:
                    results[label] = Target(label, TargetStatus.DUE, f"answered {status}")
        return fold(tuple(results.values()), phase="answer")

    async def close(self) -> None:
        if self._is_outbound_ours:
            await self._outbound.close()

    async def _post(self, settings: Mapping[str, object], label: str, envelope: Envelope, timeout_s: float) -> int:
        record = envelope.transcript or (lambda _: None)
        message = {
            "title": envelope.subject,
            # The id is the same at every attempt, so that a receiver can recognise a duplicate.
            "message": f"{envelope.body}\n\n{envelope.notification_id}",
            "priority": PRIORITIES.get(envelope.severity, 5) if envelope.severity else 5,
        }
        headers = {"Content-Type": "application/json", "X-Gotify-Key": envelope.target_secrets[label].reveal()}
        url = check_url(f"{settings['url']}/message", "admin")
        # Point of no return: check that the claim is still valid.
        envelope.gate()
        record(f"> POST {url}")
        answer = await self._outbound.admin_http.request(
            "POST", url, headers=headers, body=json.dumps(message).encode(), timeout_s=max(timeout_s, 0.01)
        )
        record(f"< {answer.status}")
        return answer.status


def _channel_failure(results: Mapping[str, Target], reason: str) -> Outcome:
    """Held if no target has a result yet; otherwise keep the results of the finished targets."""
    if any(target.status is not TargetStatus.DUE for target in results.values()):
        return fold(tuple(results.values()), phase="connect")
    return Held(reason, phase="connect")
