"""Notices: events about the subscriptions themselves, on topics that users may subscribe to or route.

Each is published once per occurrence. `failing` and `recovered` begin and end an outage; `blocked` reports that the
breaker opened; warnings and `disabled` follow if the outage lasts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY

NOTICE_TOPICS = "fieldpost.subscription."
FAILING = NOTICE_TOPICS + "failing"
BLOCKED = NOTICE_TOPICS + "blocked"
DISABLED = NOTICE_TOPICS + "disabled"
RECOVERED = NOTICE_TOPICS + "recovered"
NOTICE_TYPES: Mapping[str, str] = {
    FAILING: "A subscription began to fail, or has failed for half of the time after which it is disabled.",
    BLOCKED: "A subscription is blocked after too many failures in a row.",
    DISABLED: "A subscription was disabled: by its receiver (410), after days of failures, or by a user.",
    RECOVERED: "A subscription works again after failures.",
}
SOURCE = "system"
WARNINGS = (50, 70, 90)
"""Warnings during an outage, in percent of the time after which a subscription is disabled."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice about a subscription."""

    topic: str
    subscription_id: str
    data: Mapping[str, object] = field(default_factory=dict)


def notices_of(before: Breaker, after: Breaker) -> Iterator[Notice]:
    """The notices that a change of a subscription's breaker causes."""
    if not after.key.startswith(SUBSCRIPTION_KEY):
        return
    subscription_id = after.key.removeprefix(SUBSCRIPTION_KEY)
    data: dict[str, object] = {"error": after.last_error, "failures": after.failures}
    if before.failing_since is None and after.failing_since is not None:
        yield Notice(FAILING, subscription_id, data)
    if before.state is BreakerState.CLOSED and after.state is BreakerState.OPEN:
        yield Notice(BLOCKED, subscription_id, data)
    if before.failing_since is not None and after.failing_since is None:
        yield Notice(RECOVERED, subscription_id)


def outage_percent(breaker: Breaker, disable_after: timedelta, now: datetime) -> int:
    """How much of the time after which a subscription is disabled its outage has lasted; 0 while it works."""
    return 0 if breaker.failing_since is None else int(100 * (now - breaker.failing_since) / disable_after)


def due_warning(breaker: Breaker, percent: int) -> int | None:
    """The warning to give now; None if it was given already."""
    reached = max((warning for warning in WARNINGS if percent >= warning), default=0)
    return reached if reached > breaker.warned_percent else None
