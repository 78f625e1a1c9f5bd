"""Lists and channels, and the rule that resolves a notification's list to its way out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fieldpost.core.outcome import PermanentFailure
from fieldpost.core.retry import RetryPolicy

DEFAULT_TYPE = "email"
"""What a notification for a list unknown at ingest is stored as; delivery then parks it, naming the list."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A configured way out: an adapter type plus settings."""

    name: str
    type: str
    settings: Mapping[str, object]
    is_default: bool = False
    version: int = 1
    retry: RetryPolicy | None = None
    """Else a fixed policy from `max_retries` and `retry_delay_s` of its settings."""


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
    """Else the channel's."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The lists and channels at one moment, as a sweep sees them (lists without their targets)."""

    lists: Mapping[str, NotificationList] = field(default_factory=dict)
    channels: Mapping[str, Channel] = field(default_factory=dict)

    def channel_of(self, notification_list: NotificationList) -> Channel | None:
        """The list's own channel, else the default of its type, else the type's only one."""
        if notification_list.channel_name is not None:
            return self.channels.get(notification_list.channel_name)
        of_type = [c for c in self.channels.values() if c.type == notification_list.type]
        defaults = [c for c in of_type if c.is_default]
        if defaults:
            return defaults[0]
        return of_type[0] if len(of_type) == 1 else None


@dataclass(frozen=True, slots=True)
class Route:
    """Where a notification goes: its list and the channel that carries it."""

    notification_list: NotificationList
    channel: Channel


def resolve(directory: Directory, list_name: str) -> Route | PermanentFailure:
    """The route of a list, or the reason why there is none; that reason parks at once."""
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
            f"list {list_name!r} is of type {notification_list.type!r}, its channel {channel.name!r} is not",
            phase="resolve",
        )
    return Route(notification_list, channel)
