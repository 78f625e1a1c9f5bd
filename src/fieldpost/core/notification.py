"""The notification: one message to one list, and its statuses."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from struct import Struct

from fieldpost.core.ids import NotificationId


class Status(StrEnum):
    """The status of a notification at central; a site also reports `forwarding`, `rejected` and `unknown`."""

    PENDING = "pending"
    RETRYING = "retrying"
    DELIVERED = "delivered"
    PARKED = "parked"
    DISCARDED = "discarded"

    @property
    def is_terminal(self) -> bool:
        """Parked counts as terminal (for purge and KPIs) although an operator can retry it."""
        return self not in LIVE


LIVE = frozenset({Status.PENDING, Status.RETRYING})


class TargetStatus(StrEnum):
    """The delivery status of one target."""

    DUE = "due"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Target:
    """One recipient of a notification, fixed at the first attempt."""

    address: str
    status: TargetStatus = TargetStatus.DUE
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a notification. The site is taken from the sender's token, the rest from the message."""

    site: str
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked notification from a sender, before it has a row."""

    notification_id: NotificationId
    list_name: str
    subject: str
    body: str
    provenance: Provenance
    enqueued_at: str | None = None
    """When the script called send, by the site's clock: for display only, never for ordering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A notification without body and targets, for lists."""

    notification_id: NotificationId
    type: str
    list_name: str
    subject: str
    provenance: Provenance
    status: Status
    delivery_key: str
    created_at: datetime
    due_at: datetime | None
    cycle_started_at: datetime
    cycle: int = 1
    version: int = 1
    retry_count: int = 0
    last_error: str | None = None
    last_attempt_at: datetime | None = None
    next_attempt_at: datetime | None = None
    delivered_at: datetime | None = None
    terminal_at: datetime | None = None
    held_by: str | None = None
    held_reason: str | None = None
    site_enqueued_at: datetime | None = None
    site_enqueued_text: str | None = None
    event_id: str | None = None
    """The event that caused it; None for a notification to a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification(Summary):
    """One row of the `notifications` table, with its targets if requested."""

    body: str
    type_data: dict[str, object] | None = None
    targets: tuple[Target, ...] = ()


def digest(submission: Submission) -> bytes:
    """The digest by which duplicates are found: SHA-256 of length-prefixed UTF-8 site, list name, subject and body."""
    subject, body = submission.subject.encode(), submission.body.encode()
    site, list_name = _prefixed(submission.provenance.site), _prefixed(submission.list_name)
    return sha256(
        b"%b%b%b%b%b%b" % (site, list_name, _LENGTH(len(subject)), subject, _LENGTH(len(body)), body)
    ).digest()


@lru_cache(maxsize=4096)
def _prefixed(name: str) -> bytes:
    """Cached because sites and list names repeat."""
    encoded = name.encode()
    return _LENGTH(len(encoded)) + encoded


_LENGTH = Struct(">Q").pack


LIST_KEY = "list:"


def list_key(list_name: str) -> str:
    """The delivery key of a list. Concurrency is limited per delivery key."""
    return LIST_KEY + list_name
