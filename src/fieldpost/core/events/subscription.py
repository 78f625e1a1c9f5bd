"""Subscriptions: receivers of events, each one its own delivery path."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from urllib.parse import urlsplit

from fieldpost.core.delivery.rate import Rate, parse_rate
from fieldpost.core.delivery.retry import RetryPolicy
from fieldpost.core.errors import Conflict
from fieldpost.core.events.filter import SubscriptionFilter
from fieldpost.core.text import truncate
from fieldpost.core.times import from_text

SUBSCRIPTION_KEY = "subscription:"
WEBHOOK_TYPE = "webhook"


class SubscriptionState(StrEnum):
    """Disabled and removed subscriptions get no notifications; those of an unverified or a paused one are held."""

    ACTIVE = "active"
    UNVERIFIED = "unverified"
    """Its receiver has not answered a signed test yet."""
    PAUSED = "paused"
    DISABLED = "disabled"
    REMOVED = "removed"

    @property
    def gets_notifications(self) -> bool:
        return self in (SubscriptionState.ACTIVE, SubscriptionState.UNVERIFIED, SubscriptionState.PAUSED)

    @property
    def holds(self) -> bool:
        """Whether notifications are created and wait."""
        return self in (SubscriptionState.UNVERIFIED, SubscriptionState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A stored subscription."""

    subscription_id: str
    name: str
    owner: str
    filter: SubscriptionFilter
    state: SubscriptionState = SubscriptionState.ACTIVE
    state_reason: str | None = None
    """Why it is paused, disabled or removed."""
    state_by: str | None = None
    """The user who changed the state, or `system`."""
    state_at: datetime | None = None
    is_restricted: bool = False
    """Made or filtered by a subscriber: it gets only topics that its owner may read."""
    is_verified: bool = True
    """False until the receiver has answered a signed test, for a URL that a subscriber gave. Until then nothing else is
    sent to it."""
    is_draining: bool = False
    """Disabled or removed, with notifications left that are to be parked or discarded."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """URL, format, authentication and limits, as `adapters/webhook/settings.py` checks them."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Encrypted values by setting name."""
    retry: RetryPolicy | None = None
    """None for the default schedule."""
    abonnement_id: str | None = None
    """The random id in the URL of a subscription that is an abonnement of the ZGW API."""
    version: int = 1

    @property
    def url(self) -> str:
        return str(self.settings.get("url", ""))

    @property
    def host(self) -> str | None:
        """The host of its URL, which limits deliveries over all subscriptions; None without a URL."""
        return urlsplit(self.url).hostname

    @property
    def auth_expires_at(self) -> datetime | None:
        """When the JWT expires that is sent as authentication; None if it is not a JWT, or does not expire."""
        return from_text(str(self.settings.get("auth_expires_at", "")))

    @property
    def hold_reason(self) -> str | None:
        """Why its notifications are held; None if they are not."""
        match self.state:
            case SubscriptionState.PAUSED:
                by = f" by {self.state_by}" if self.state_by else ""
                why = f": {self.state_reason}" if self.state_reason else ""
                return f"The subscription {self.name!r} is paused{by}{why}"
            case SubscriptionState.UNVERIFIED:
                return f"The receiver of the subscription {self.name!r} has not answered a signed test with 2xx yet"
            case SubscriptionState.DISABLED | SubscriptionState.REMOVED:
                return f"The subscription {self.name!r} is {self.state.value}"
            case SubscriptionState.ACTIVE:
                return None

    @property
    def rate(self) -> Rate | None:
        """How many deliveries may start per period."""
        rate = self.settings.get("rate")
        return parse_rate(rate) if rate is not None else None


def subscription_key(subscription_id: str) -> str:
    """The delivery key of a subscription's notifications."""
    return SUBSCRIPTION_KEY + subscription_id


_MOVES: Mapping[SubscriptionState, tuple[SubscriptionState, ...]] = {
    SubscriptionState.ACTIVE: (
        SubscriptionState.UNVERIFIED,
        SubscriptionState.PAUSED,
        SubscriptionState.DISABLED,
    ),
    SubscriptionState.UNVERIFIED: (SubscriptionState.ACTIVE, SubscriptionState.PAUSED, SubscriptionState.DISABLED),
    SubscriptionState.PAUSED: (
        SubscriptionState.ACTIVE,
        SubscriptionState.UNVERIFIED,
        SubscriptionState.PAUSED,
    ),
    SubscriptionState.DISABLED: (
        SubscriptionState.ACTIVE,
        SubscriptionState.UNVERIFIED,
        SubscriptionState.PAUSED,
    ),
    SubscriptionState.REMOVED: (
        SubscriptionState.ACTIVE,
        SubscriptionState.UNVERIFIED,
        SubscriptionState.PAUSED,
        SubscriptionState.DISABLED,
    ),
}
"""The states from which each state can be reached."""


def in_state(
    subscription: Subscription, state: SubscriptionState, *, by: str, reason: str | None, now: datetime
) -> Subscription:
    """The subscription in another state; Conflict if that cannot follow from its present one.

    A disabled or removed subscription drains: its waiting notifications are parked or discarded in batches. One whose
    receiver has not answered a test becomes unverified instead of active.
    """
    if state is SubscriptionState.ACTIVE and not subscription.is_verified:
        state = SubscriptionState.UNVERIFIED
    if subscription.state not in _MOVES[state]:
        raise Conflict(
            "subscription.state",
            f"a subscription that is {subscription.state.value} cannot become {state.value}",
            hint="create it again" if subscription.state is SubscriptionState.REMOVED else None,
        )
    return replace(
        subscription,
        state=state,
        state_by=by,
        state_reason=truncate(reason) if reason else None,
        state_at=now,
        is_draining=not state.gets_notifications,
    )


def awaiting_test(subscription: Subscription, *, by: str, now: datetime) -> Subscription:
    """The subscription after a subscriber gave its URL: until its receiver answers a signed test, its notifications are
    held. A paused or disabled one stays so, and becomes unverified when it is resumed or enabled."""
    untested = replace(subscription, is_verified=False)
    if subscription.state is not SubscriptionState.ACTIVE:
        return untested
    return in_state(untested, SubscriptionState.UNVERIFIED, by=by, reason=None, now=now)


def passed_test(subscription: Subscription, *, by: str, now: datetime) -> Subscription:
    """The subscription after its receiver answered a signed test with 2xx; an unverified one is now active."""
    tested = replace(subscription, is_verified=True)
    if subscription.state is not SubscriptionState.UNVERIFIED:
        return tested
    return in_state(tested, SubscriptionState.ACTIVE, by=by, reason=None, now=now)
