"""What a site buffers, and what it remembers of its cached calls.

A *message* is a row of the buffer: it lives until whoever it is meant for has taken it, or a person gave it up. An
*operation* is a cached call (an external call or a database write) as scripts and operators know it: its record is
made when the script issues the call, outlives the message, and tells the outcome. The message is only the means by
which an operation is tried again; both carry the same id.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fieldpost.core.ids import CallId
from fieldpost.core.notification import Provenance


class Category(StrEnum):
    """Which carrier takes a message."""

    NOTIFICATION = "notification"
    EXTERNAL_CALL = "external_call"
    DATABASE_WRITE = "database_write"

    @property
    def is_tracked(self) -> bool:
        """Cached calls have a tracked operation at the site; a notification's record is central's."""
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
    status: MessageStatus = MessageStatus.PENDING
    retry_count: int = 0
    """Attempts that were made and did not settle it."""
    last_error: str | None = None
    last_attempt_at: datetime | None = None
    due_at: datetime | None = None
    """Not before this time; None means at once."""
    claim_token: int = 0
    """How often it was claimed; whoever settles a cached call shows the token that its claim gave it."""


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


class CallStatus(StrEnum):
    """Where an operation stands, as its site knows it."""

    PENDING = "pending"
    """Issued; the first attempt has no outcome yet."""
    RETRYING = "retrying"
    DELIVERED = "delivered"
    PARKED = "parked"
    """Given up for now: a person retries or discards it."""
    FAILED = "failed"
    """Refused at the first attempt, and the script was told so."""
    DISCARDED = "discarded"
    """Given up for good, by a person."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can follow. A parked operation is not at its end, however long it lies there."""
        return self in (CallStatus.DELIVERED, CallStatus.FAILED, CallStatus.DISCARDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A cached call as a script issues it, before it has a row."""

    call_id: CallId
    category: Category
    target: str
    """The name of the external system or the database connection."""
    target_summary: str
    """For people: `erp POST /orders`, or the connection's name."""
    payload: str
    provenance: Provenance
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """What a site's tracking table says of one operation. Times are by the site's clock, in UTC."""

    call_id: CallId
    category: Category
    target_summary: str
    """The external system, method and path (`erp POST /orders`), or the database connection's name."""
    status: CallStatus
    retry_count: int
    """Attempts since the first, which is not counted; an operator's retry begins anew at 0."""
    last_error: str | None
    http_status: int | None
    """The status of the last answer, where the target speaks HTTP and gave one."""
    instance: str | None
    script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    created_at: datetime
    updated_at: datetime
    terminal_at: datetime | None
    """When it came to its end; None while it lives or is parked."""
    version: int
    """Grows by one with every change of this operation, so that a late report never overwrites a newer one."""
    change_sequence: int
    """Grows over all operations of the site: the cursor of whoever wants what has changed since."""

    @property
    def is_terminal(self) -> bool:
        """Whether it has come to its end. What is parked has not."""
        return self.status.is_terminal

    @property
    def is_delivered(self) -> bool:
        """Whether the target has taken it."""
        return self.status is CallStatus.DELIVERED
