"""Lists and channels, the resolution of a list to its delivery path, and the differences between two lists."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from fieldpost.core.outcome import PermanentFailure
from fieldpost.core.retry import RetryPolicy

DEFAULT_TYPE = "email"
"""The type stored for a notification whose list is unknown at ingest; delivery then parks it, naming the list."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A configured adapter: type, settings and secrets."""

    name: str
    type: str
    settings: Mapping[str, object]
    is_default: bool = False
    version: int = 1
    retry: RetryPolicy | None = None
    """None for a fixed policy from `max_retries` and `retry_delay_s` of its settings."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Encrypted values by setting name; only the adapter gets the plain text."""


@dataclass(frozen=True, slots=True)
class NotificationList:
    """A named set of targets of one type; the type is fixed at creation."""

    name: str
    type: str
    channel_name: str | None = None
    targets: tuple[str, ...] = ()
    park_uncertain: bool = False
    version: int = 1
    retry: RetryPolicy | None = None
    """None for the channel's policy."""
    allowed_sites: tuple[str, ...] | None = None
    """The sites that may send to this list; None for all."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A snapshot of lists (without targets) and channels, used by one sweep."""

    lists: Mapping[str, NotificationList] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)

    def channel_of(self, notification_list: NotificationList) -> Channel | None:
        """The list's own channel, else the default channel of its type, else the only channel of its type."""
        if notification_list.channel_name is not None:
            return self.channels.get(notification_list.channel_name)
        of_type = [c for c in self.channels.values() if c.type == notification_list.type]
        defaults = [c for c in of_type if c.is_default]
        if defaults:
            return defaults[0]
        return of_type[0] if len(of_type) == 1 else None


@dataclass(frozen=True, slots=True)
class DeliveryPath:
    """A list and the channel that delivers to it."""

    notification_list: NotificationList
    channel: Channel


def resolve(directory: Directory, list_name: str) -> DeliveryPath | PermanentFailure:
    """The delivery path of a list, or the failure that parks the notification."""
    notification_list = directory.lists.get(list_name)
    if notification_list is None:
        return PermanentFailure(f"there is no list named {list_name!r}", phase="resolve")
    channel = directory.channel_of(notification_list)
    if channel is None:
        wanted = notification_list.channel_name
        missing = f"its channel {wanted!r} does not exist" if wanted else "no default channel of its type is configured"
        return PermanentFailure(
            f"list {list_name!r} is of type {notification_list.type!r}, but {missing}", phase="resolve"
        )
    if channel.type != notification_list.type:
        return PermanentFailure(
            f"list {list_name!r} is of type {notification_list.type!r}, but its channel {channel.name!r} is of type"
            f" {channel.type!r}",
            phase="resolve",
        )
    return DeliveryPath(notification_list, channel)


def refuse_site(notification_list: NotificationList, site: str) -> PermanentFailure | None:
    """The failure that parks a notification of a site that may not send to this list; None if it may."""
    allowed = notification_list.allowed_sites
    if allowed is None or site in allowed:
        return None
    shown = ", ".join(repr(name) for name in allowed[:5]) + (
        " and others" if len(allowed) > 5 else "" if allowed else "none"
    )
    return PermanentFailure(
        f"site {site!r} may not send to list {notification_list.name!r}; allowed sites: {shown}",
        phase="resolve",
    )


@dataclass(frozen=True, slots=True)
class ListChange:
    """The difference between two versions of a list."""

    name: str
    is_new: bool
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    """Names of changed properties: channel, park_uncertain, retry, allowed_sites."""

    @property
    def is_empty(self) -> bool:
        return not (self.is_new or self.added or self.removed or self.properties)


def compare(before: NotificationList | None, after: NotificationList) -> ListChange:
    """The changes that turn `before` into `after`."""
    if before is None:
        return ListChange(after.name, True, after.targets)
    properties = {
        "channel": before.channel_name != after.channel_name,
        "park_uncertain": before.park_uncertain != after.park_uncertain,
        "retry": before.retry != after.retry,
        "allowed_sites": before.allowed_sites != after.allowed_sites,
    }
    return ListChange(
        after.name,
        False,
        _without(after.targets, before.targets),
        _without(before.targets, after.targets),
        tuple(name for name, differs in properties.items() if differs),
    )


def plan_mark(changes: Iterable[ListChange]) -> str:
    """A digest of the changes of an import, by which a plan can be confirmed before it is applied."""
    return sha256("\n".join(map(repr, changes)).encode()).hexdigest()


def _without(targets: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    left_out = set(others)
    return tuple(target for target in targets if target not in left_out)
