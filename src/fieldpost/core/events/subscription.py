"""Subscriptions: receivers of events, each one its own delivery path."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from fieldpost.core.delivery.retry import RetryPolicy
from fieldpost.core.events.filter import SubscriptionFilter

SUBSCRIPTION_KEY = "subscription:"
WEBHOOK_TYPE = "webhook"


class SubscriptionState(StrEnum):
    """Only an active or a paused subscription gets notifications; those of a paused one are held."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    REMOVED = "removed"

    @property
    def gets_notifications(self) -> bool:
        return self in (SubscriptionState.ACTIVE, SubscriptionState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A stored subscription."""

    subscription_id: str
    name: str
    owner: str
    filter: SubscriptionFilter
    state: SubscriptionState = SubscriptionState.ACTIVE
    settings: Mapping[str, object] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Encrypted values by setting name."""
    retry: RetryPolicy | None = None
    """None for the default schedule."""
    version: int = 1

    @property
    def host(self) -> str | None:
        """The host of its URL, which limits deliveries over all subscriptions; None without a URL."""
        url = self.settings.get("url")
        return urlsplit(url).hostname if isinstance(url, str) else None


def subscription_key(subscription_id: str) -> str:
    """The delivery key of a subscription's notifications."""
    return SUBSCRIPTION_KEY + subscription_id
