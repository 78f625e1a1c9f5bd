"""The result of an event: the state that follows from its notifications, for the application that published it."""

from collections.abc import Mapping
from enum import StrEnum

from fieldpost.core.notification import LIVE, Status


class EventState(StrEnum):
    """The state of an event as its publisher sees it."""

    FAILED = "failed"
    """A notification is parked or discarded."""
    TEMPLATE_NOT_FOUND = "template_not_found"
    """A matching route has no template."""
    PROCESSING = "processing"
    """A notification is neither delivered nor parked yet."""
    SENT = "sent"
    """Every notification is delivered, or there is none."""
    PURGED = "purged"
    """The event or all of its notifications ended, and their retention is over."""
    UNKNOWN = "unknown"
    """Central has no record of the event: it was never published, or the record was lost with the database."""


def event_state(counts: Mapping[Status, int], match_count: int, *, lacks_template: bool = False) -> EventState:
    """The state of a recorded event from the numbers of its notifications by status; the first that applies wins.

    `match_count` is the number of notifications that it caused. If more were caused than exist, the others are purged.
    """
    if counts.get(Status.PARKED) or counts.get(Status.DISCARDED):
        return EventState.FAILED
    if lacks_template:
        return EventState.TEMPLATE_NOT_FOUND
    if any(counts.get(status) for status in LIVE):
        return EventState.PROCESSING
    if match_count and not any(counts.values()):
        return EventState.PURGED
    return EventState.SENT
