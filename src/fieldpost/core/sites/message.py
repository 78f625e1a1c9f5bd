"""Messages in a site's buffer, and the records of its cached calls.

A *message* is a row of the buffer. It exists until its receiver has accepted it or a person has discarded it. A *call*
is an external call or a database write. Its record is created when the script issues the call, outlives the message and
keeps the outcome. The message exists only while the call is retried; both have the same id.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fieldpost.core.ids import CallId
from fieldpost.core.notification import Provenance


class Category(StrEnum):
    """The kind of a message, which determines its carrier."""

    NOTIFICATION = "notification"
    EXTERNAL_CALL = "external_call"
    DATABASE_WRITE = "database_write"

    @property
    def is_tracked(self) -> bool:
        """Whether the site keeps a record of it. Central keeps the record of a notification."""
        return self is not Category.NOTIFICATION


class MessageStatus(StrEnum):
    """The status of a buffered message. None of them is final: the row is deleted when the message ends."""

    PENDING = "pending"
    RETRYING = "retrying"
    PARKED = "parked"


CENTRAL = "central"
"""The target of every notification; cached calls name an external system or a database connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row of a site's buffer."""

    sequence: int
    """Commit order; a site's clock is never used for order."""
    message_id: str
    category: Category
    target: str
    payload: str
    """JSON; for a notification the item that the link sends, so that it is encoded only once."""
    created_at: datetime
    status: MessageStatus = MessageStatus.PENDING
    retry_count: int = 0
    """Failed attempts so far."""
    last_error: str | None = None
    last_attempt_at: datetime | None = None
    due_at: datetime | None = None
    """When it may be tried; None means immediately."""
    claim_token: int = 0
    """How often it was claimed. A result must present the token of its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedMessage:
    """One entry of the rejected box: a notification that central refused for good."""

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
    """The status of a call at its site."""

    PENDING = "pending"
    """Issued; the first attempt has no result yet."""
    RETRYING = "retrying"
    DELIVERED = "delivered"
    PARKED = "parked"
    """Waits for a person to retry or discard it."""
    FAILED = "failed"
    """Refused at the first attempt; the script got the error."""
    DISCARDED = "discarded"
    """Discarded by a person."""

    @property
    def is_terminal(self) -> bool:
        """Whether this status is final. Parked is not."""
        return self in (CallStatus.DELIVERED, CallStatus.FAILED, CallStatus.DISCARDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A cached call that a script issues, before it is in the buffer."""

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
class CallReport:
    """One call as its site reports it. Times are by the site's clock; None if missing or unreadable."""

    call_id: str
    category: Category
    target_summary: str
    """The external system, method and path (`erp POST /orders`), or the database connection's name."""
    status: CallStatus
    retry_count: int
    """Attempts after the first one; an operator's retry resets it to 0."""
    last_error: str | None
    http_status: int | None
    """The HTTP status of the last response, if there was one."""
    instance: str | None
    script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    created_at: datetime | None
    updated_at: datetime | None
    terminal_at: datetime | None
    """When it reached a final status; None before that."""
    version: int
    """Increases with every change of this record, so that a late report never overwrites a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord(CallReport):
    """The record of one cached call in a site's tracking table. Times are by the site's clock, in UTC."""

    call_id: CallId
    created_at: datetime
    updated_at: datetime
    change_sequence: int
    """Increases with every change of any record of the site: the cursor for reading changes."""

    @property
    def is_terminal(self) -> bool:
        """Whether its status is final. Parked is not."""
        return self.status.is_terminal

    @property
    def is_delivered(self) -> bool:
        """Whether the target has accepted it."""
        return self.status is CallStatus.DELIVERED
