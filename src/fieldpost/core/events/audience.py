"""Who may get an event, besides the filters: notices about subscriptions, and topics that an owner may read.

A notice goes only to subscriptions that name its topic: a plain `*` does not ask for it. It never goes to the
subscription that it is about. A subscription made by a subscriber gets only the notices about subscriptions of its
owner, and only topics that name its owner.
"""

from collections.abc import Iterable

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import SubscriptionFilter, filter_matches
from fieldpost.core.events.notice import NOTICE_TOPICS, NOTICE_TYPES, SOURCE
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.topic import Topic

RESERVED = "fieldpost."
"""The start of topics that only central itself publishes to."""
ALL_OWNERS = "*"


def is_reserved(event: Event) -> bool:
    """Whether the event's source may not publish to its topic."""
    return event.topic.startswith(RESERVED) and event.source != SOURCE


def may_get(subscription: Subscription, event: Event, topic: Topic | None) -> bool:
    """Whether a subscription whose filter matches may get the event."""
    if event.topic.startswith(NOTICE_TOPICS):
        return _may_get_notice(subscription, event)
    if not subscription.is_restricted:
        return True
    return topic is not None and may_read(subscription.owner, topic)


def may_read(owner: str, topic: Topic) -> bool:
    """Whether the topic names this owner, so that the owner may subscribe to it without an administrator."""
    return ALL_OWNERS in topic.owners or owner in topic.owners


def check_readable(filter: SubscriptionFilter, owner: str, topics: Iterable[Topic]) -> None:
    """InvalidInput if an entry names a topic that the owner may not read; the error is that for an unknown topic.

    An entry with `*` needs no check: it matches only topics that the owner may read.
    """
    readable = {topic.name for topic in topics if may_read(owner, topic)} | NOTICE_TYPES.keys()
    for number, entry in enumerate(filter):
        if "*" not in entry.topic and entry.topic not in readable:
            raise InvalidInput(
                "filter.topic",
                f"there is no topic {entry.topic!r} that {owner!r} may subscribe to",
                hint="`fieldpost topics list` shows the topics; an administrator can open one to you",
                field=f"filter[{number}].topic",
            )


def _may_get_notice(subscription: Subscription, event: Event) -> bool:
    if event.attributes.get("subscription") == subscription.subscription_id:
        return False
    if subscription.is_restricted and event.attributes.get("owner") != subscription.owner:
        return False
    return filter_matches(tuple(e for e in subscription.filter if e.topic.startswith(RESERVED)), event)
