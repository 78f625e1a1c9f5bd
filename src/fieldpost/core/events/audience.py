"""Who may get an event, besides the filters: notices about subscriptions, and topics that an owner may read.

A notice goes only to subscriptions that name its topic: a plain `*` does not ask for it. It never goes to the
subscription that it is about. A subscription made by a subscriber gets only the notices about subscriptions of its
owner, and only topics that name its owner.
"""

from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import filter_matches
from fieldpost.core.events.notice import NOTICE_TOPICS, SOURCE
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
    return topic is not None and (ALL_OWNERS in topic.owners or subscription.owner in topic.owners)


def _may_get_notice(subscription: Subscription, event: Event) -> bool:
    if event.attributes.get("subscription") == subscription.subscription_id:
        return False
    if subscription.is_restricted and event.attributes.get("owner") != subscription.owner:
        return False
    return filter_matches(tuple(e for e in subscription.filter if e.topic.startswith(RESERVED)), event)
