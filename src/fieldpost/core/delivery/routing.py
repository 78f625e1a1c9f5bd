"""Delivery paths: everything that follows from a delivery key.

A delivery key is `list:<name>` or `subscription:<id>`. Its path names the adapter type with settings and secrets, the
retry policy, the breaker with its policy, and the limits. This is the only module that derives a channel, a breaker key
or a retry policy from a list; other code asks for the path of a delivery key.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from fieldpost.core.delivery.adapter import RateDefaults, SecretTargets
from fieldpost.core.delivery.breaker import BreakerPolicy, channel_key
from fieldpost.core.delivery.lifecycle import Policy
from fieldpost.core.delivery.outcome import Evidence, PermanentFailure
from fieldpost.core.delivery.rate import Rate
from fieldpost.core.delivery.receipt import Receipts
from fieldpost.core.delivery.retry import (
    ATTEMPTS_MAX_DEFAULT,
    RETRY_DELAY_S_DEFAULT,
    RetryPolicy,
    Schedule,
    fixed_from_settings,
)
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY, WEBHOOK_TYPE, Subscription
from fieldpost.core.lists import LISTS_TYPE, Channel, NotificationList
from fieldpost.core.notification import LIST_KEY, Notification, list_key

RETRY_DEFAULTS = {"max_retries": ATTEMPTS_MAX_DEFAULT, "retry_delay_s": RETRY_DELAY_S_DEFAULT}
CHANNEL_BREAKER = BreakerPolicy()
SUBSCRIPTION_BREAKER = BreakerPolicy(failures_max=10, break_s=300.0, lapse_s=600.0)
SUBSCRIPTION_RETRY = Schedule(tuple(timedelta(minutes=minutes) for minutes in (15, 30, 60, 240, 1440)))


class SlotPool(StrEnum):
    """Deliveries to lists and to subscriptions have separate slots, so that neither can take the other's."""

    LISTS = "lists"
    SUBSCRIPTIONS = "subscriptions"

    @property
    def prefix(self) -> str:
        """The start of the delivery keys in this pool."""
        return LIST_KEY if self is SlotPool.LISTS else SUBSCRIPTION_KEY


def pool_of(delivery_key: str) -> SlotPool:
    return SlotPool.SUBSCRIPTIONS if delivery_key.startswith(SUBSCRIPTION_KEY) else SlotPool.LISTS


@dataclass(frozen=True, slots=True)
class Directory:
    """The stored lists (without their targets), channels and subscriptions that paths are resolved from."""

    lists: Mapping[str, NotificationList] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    """By id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTraits:
    """The traits of a channel type that paths depend on."""

    channel_rate: Rate | None = None
    list_rate: Rate | None = None
    has_target_secrets: bool = False
    has_receipts: bool = False
    has_own_urls: bool = False
    """Whether each target of its lists has a separate URL."""


PLAIN_TYPE = TypeTraits()


def traits_of(adapter: object) -> TypeTraits:
    """The traits of an adapter's type."""
    rates = adapter if isinstance(adapter, RateDefaults) else None
    return TypeTraits(
        channel_rate=rates.channel_rate if rates else None,
        list_rate=rates.list_rate if rates else None,
        has_target_secrets=isinstance(adapter, SecretTargets),
        has_receipts=isinstance(adapter, Receipts),
        has_own_urls=isinstance(adapter, SecretTargets) and adapter.has_own_urls,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PathDefaults:
    """Settings of the installation that paths inherit."""

    channel_breaker: BreakerPolicy = CHANNEL_BREAKER
    subscription_breaker: BreakerPolicy = SUBSCRIPTION_BREAKER
    subscription_retry: RetryPolicy = SUBSCRIPTION_RETRY
    abonnement_retry: RetryPolicy = SUBSCRIPTION_RETRY
    """For subscriptions of the ZGW API."""
    hold_max: timedelta = timedelta(days=5)
    types: Mapping[str, TypeTraits] = field(default_factory=dict)
    """By type; types without an entry are plain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLimits:
    """How many deliveries a node makes at once on this path."""

    pool: SlotPool
    host: str | None = None
    """Deliveries to one host are limited over all paths; None for paths that have no single host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPath:
    """How notifications of one delivery key are delivered."""

    delivery_key: str
    breaker_key: str
    type: str
    via: Channel | Subscription
    """The owner of settings and secrets."""
    policy: Policy
    breaker_policy: BreakerPolicy
    limits: PathLimits
    allowed_sites: tuple[str, ...] | None = None
    """The sites that may send on this path; None for all."""
    hold_reason: str | None = None
    """Why no attempt may be made at present: the subscription is paused, not verified yet, disabled or removed."""
    rate: Rate | None = None
    """How many deliveries of a subscription may start per period, over all nodes."""
    has_target_secrets: bool = False
    """Whether each target is a label with a secret."""
    has_receipts: bool = False
    """Whether its provider reports on accepted targets."""
    rates: tuple[tuple[str, Rate], ...] = ()
    """The rates that deliveries to a list keep, over all nodes, each under the key of its list or channel."""

    @property
    def channel_name(self) -> str | None:
        return self.via.name if isinstance(self.via, Channel) else None

    @property
    def label(self) -> str:
        """The path's owner, for sentences."""
        kind = "channel" if isinstance(self.via, Channel) else "subscription"
        return f"{kind} {self.via.name!r}"


def resolve(directory: Directory, delivery_key: str, defaults: PathDefaults) -> DeliveryPath | PermanentFailure:
    """The path of a delivery key, or the failure that parks its notifications."""
    if pool_of(delivery_key) is SlotPool.SUBSCRIPTIONS:
        return _resolve_subscription(directory, delivery_key, defaults)
    return _resolve_list(directory, delivery_key.removeprefix(LIST_KEY), defaults)


def channel_of(directory: Directory, notification_list: NotificationList) -> Channel | None:
    """The list's own channel, else the default channel of its type, else the only channel of its type."""
    if notification_list.channel_name is not None:
        return directory.channels.get(notification_list.channel_name)
    of_type = [c for c in directory.channels.values() if c.type == notification_list.type]
    defaults = [c for c in of_type if c.is_default]
    if defaults:
        return defaults[0]
    return of_type[0] if len(of_type) == 1 else None


def lists_by_channel(directory: Directory) -> dict[str | None, list[str]]:
    """The names of all lists, in order, by the name of the channel that delivers to them; None without a channel.

    Lists of lists are left out: their members have channels.
    """
    found: dict[str | None, list[str]] = {}
    for name in sorted(name for name, one in directory.lists.items() if one.type != LISTS_TYPE):
        channel = channel_of(directory, directory.lists[name])
        found.setdefault(channel.name if channel else None, []).append(name)
    return found


def lists_of(directory: Directory, channel_name: str) -> list[str]:
    """The names of the lists that this channel delivers to, or that name it as their channel."""
    return sorted(
        found.name
        for found in directory.lists.values()
        if found.channel_name == channel_name
        or ((used := channel_of(directory, found)) is not None and used.name == channel_name)
    )


def moved_keys(before: Directory, after: Directory) -> dict[str, list[str]]:
    """The delivery keys whose breaker a change of lists or channels replaced, by the key of the new breaker."""
    moved: dict[str, list[str]] = {}
    for name, notification_list in after.lists.items():
        old = before.lists.get(name)
        was = channel_of(before, old) if old is not None else None
        channel = channel_of(after, notification_list)
        if was is not None and channel is not None and was.name != channel.name:
            moved.setdefault(channel_key(channel.name), []).append(list_key(name))
    return moved


def refuse_site(path: DeliveryPath, site: str) -> PermanentFailure | None:
    """The failure that parks a notification of a site that may not use this path; None if it may."""
    return _refuse(path.delivery_key.removeprefix(LIST_KEY), path.allowed_sites, site)


def refuse_part(directory: Directory, n: Notification) -> PermanentFailure | None:
    """The failure that parks a part of a site that may not send to the list of lists; None if it may."""
    whole_list = directory.lists.get(n.whole_list or "")
    return None if whole_list is None else _refuse(whole_list.name, whole_list.allowed_sites, n.provenance.site)


def _refuse(name: str, allowed: tuple[str, ...] | None, site: str) -> PermanentFailure | None:
    if allowed is None or site in allowed:
        return None
    return _failure(f"site {site!r} may not send to list {name!r}; allowed sites: {_named(allowed)}")


def channel_retry(channel: Channel) -> tuple[RetryPolicy, Collection[str]]:
    """The channel's retry policy, and the names of its stored fields that are out of range and were replaced."""
    fixed, replaced = fixed_from_settings(channel.max_retries, channel.retry_delay_s)
    return channel.retry or fixed, replaced


def _resolve_list(directory: Directory, name: str, defaults: PathDefaults) -> DeliveryPath | PermanentFailure:
    notification_list = directory.lists.get(name)
    if notification_list is None:
        return _failure(f"there is no list named {name!r}")
    if notification_list.type == LISTS_TYPE:
        return _failure(f"list {name!r} is a list of lists and names no list to send to")
    channel = channel_of(directory, notification_list)
    if channel is None:
        wanted = notification_list.channel_name
        missing = f"its channel {wanted!r} does not exist" if wanted else "no default channel of its type is configured"
        return _failure(f"list {name!r} is of type {notification_list.type!r}, but {missing}")
    if channel.type != notification_list.type:
        return _failure(
            f"list {name!r} is of type {notification_list.type!r}, but its channel {channel.name!r} is of type"
            f" {channel.type!r}"
        )
    if channel.type == WEBHOOK_TYPE:
        return _webhook_list(notification_list, channel, defaults)
    retry = notification_list.retry or channel_retry(channel)[0]
    traits = defaults.types.get(channel.type, PLAIN_TYPE)
    return DeliveryPath(
        delivery_key=list_key(name),
        breaker_key=list_key(name) if traits.has_own_urls else channel_key(channel.name),
        type=channel.type,
        via=channel,
        policy=Policy(
            retry,
            notification_list.park_uncertain,
            defaults.hold_max,
            timedelta(seconds=channel.receipt_wait_s),
            channel.receipt_missing,
        ),
        breaker_policy=defaults.channel_breaker,
        limits=PathLimits(pool=SlotPool.LISTS),
        allowed_sites=notification_list.allowed_sites,
        rates=rates_of(notification_list, channel, traits),
        has_target_secrets=traits.has_target_secrets,
        has_receipts=traits.has_receipts,
    )


def rates_of(found: NotificationList, channel: Channel, traits: TypeTraits) -> tuple[tuple[str, Rate], ...]:
    """The rates of a list and its channel, else the defaults of their type, each with its key."""
    rates = (
        (list_key(found.name), found.rate or traits.list_rate),
        (channel_key(channel.name), channel.rate or traits.channel_rate),
    )
    return tuple((key, rate) for key, rate in rates if rate is not None)


def _webhook_list(found: NotificationList, channel: Channel, defaults: PathDefaults) -> DeliveryPath:
    """Each target of such a list has a separate URL, so the breaker belongs to the list, not to the channel."""
    is_default = (channel.max_retries, channel.retry_delay_s) == tuple(RETRY_DEFAULTS.values())
    of_channel = channel.retry or (defaults.subscription_retry if is_default else channel_retry(channel)[0])
    return DeliveryPath(
        delivery_key=list_key(found.name),
        breaker_key=list_key(found.name),
        type=channel.type,
        via=channel,
        policy=Policy(found.retry or of_channel, found.park_uncertain, defaults.hold_max),
        breaker_policy=defaults.subscription_breaker,
        limits=PathLimits(pool=SlotPool.LISTS),
        allowed_sites=found.allowed_sites,
        rates=rates_of(found, channel, PLAIN_TYPE),
    )


def _resolve_subscription(
    directory: Directory, delivery_key: str, defaults: PathDefaults
) -> DeliveryPath | PermanentFailure:
    subscription = directory.subscriptions.get(delivery_key.removeprefix(SUBSCRIPTION_KEY))
    if subscription is None:
        return _failure(f"there is no subscription {delivery_key.removeprefix(SUBSCRIPTION_KEY)}")
    default = defaults.subscription_retry if subscription.abonnement_id is None else defaults.abonnement_retry
    return DeliveryPath(
        delivery_key=delivery_key,
        breaker_key=delivery_key,
        type=WEBHOOK_TYPE,
        via=subscription,
        policy=Policy(subscription.retry or default, hold_max=defaults.hold_max),
        breaker_policy=defaults.subscription_breaker,
        limits=PathLimits(pool=SlotPool.SUBSCRIPTIONS, host=subscription.host),
        hold_reason=subscription.hold_reason,
        rate=subscription.rate,
    )


def _failure(error: str) -> PermanentFailure:
    return PermanentFailure(error, phase="resolve", evidence=Evidence.NONE)


def _named(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    return ", ".join(shown[:5]) + (" and others" if len(shown) > 5 else "") if shown else "none"
