"""What a site buffers: a message of one category, until whoever it is meant for has taken it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Category(StrEnum):
    """Which carrier takes a message."""

    NOTIFICATION = "notification"
    EXTERNAL_CALL = "external_call"
    DATABASE_WRITE = "database_write"

    @property
    def is_tracked(self) -> bool:
        """Cached calls have a tracked operation at the site; a notification's record is central's."""
        return self is not Category.NOTIFICATION

    @property
    def may_park(self) -> bool:
        """Notifications never park at a site: they are forwarded until central acks or rejects them."""
        return self is not Category.NOTIFICATION


class MessageStatus(StrEnum):
    """Where a buffered message stands; an outcome that ends it never appears here, since it ends the row too."""

    PENDING = "pending"
    RETRYING = "retrying"
    PARKED = "parked"


CENTRAL = "central"
"""The target of every notification; cached calls name an external system or a database connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row of a site's buffer."""

    sequence: int
    """The order in which messages were committed; a site's clock is never used for order."""
    message_id: str
    category: Category
    target: str
    payload: str
    """JSON: for a notification the item as the link carries it, so that it is encoded once, where it is made."""
    created_at: datetime
    tracked_operation_id: str | None = None
    status: MessageStatus = MessageStatus.PENDING
    retry_count: int = 0
    """Attempts that were made and did not settle it."""
    last_error: str | None = None
    last_attempt_at: datetime | None = None
    due_at: datetime | None = None
    """Not before this time; None means at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedMessage:
    """One row of the rejected box: what central refused for good, kept for a person to see."""

    message_id: str
    category: Category
    target: str
    payload: str
    code: str
    error: str
    retry_count: int
    created_at: datetime
    rejected_at: datetime
