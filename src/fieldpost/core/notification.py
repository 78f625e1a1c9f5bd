"""The notification: one message to one list, and its statuses."""

from dataclasses import field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from struct import Struct

from fieldpost.core.frozen import frozen
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


class NotificationKind(StrEnum):
    """The kind by which KPIs are reported. A notification of type `webhook` is a webhook, to a list as well."""

    LIST = "list"
    WEBHOOK = "webhook"

    @classmethod
    def of_type(cls, type: str) -> "NotificationKind":
        return cls.WEBHOOK if type == cls.WEBHOOK else cls.LIST


class Severity(StrEnum):
    """How bad the subject of an alarm is, in rising order."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class TargetStatus(StrEnum):
    """The delivery status of one target."""

    DUE = "due"
    ACCEPTED = "accepted"
    """Taken by a provider that will report on it by a receipt."""
    DELIVERED = "delivered"
    FAILED = "failed"


@frozen
class Target:
    """One recipient of a notification, fixed at the first attempt."""

    address: str
    status: TargetStatus = TargetStatus.DUE
    error: str | None = None
    truncated_to: int | None = None
    """How many characters of subject and body were sent; None if the text was sent whole."""
    provider_id: str | None = None
    """The provider's id for an accepted target, by which its receipt is found."""
    accepted_at: datetime | None = field(default=None, compare=False)
    """Since when the provider has it, while it is accepted."""


@frozen
class Provenance:
    """The origin of a notification. The site is taken from the sender's token, the rest from the message."""

    site: str
    instance: str | None = None
    script: str | None = None
    execution_id: str | None = None
    parent_execution_id: str | None = None


@frozen
class Submission:
    """A checked notification from a sender, before it has a row."""

    notification_id: NotificationId
    list_name: str
    subject: str
    body: str
    provenance: Provenance
    enqueued_at: str | None = None
    """When the script called send, by the site's clock: for display only, never for ordering."""
    severity: Severity | None = None
    incident: str | None = None
    is_cleared: bool = False


@frozen(kw_only=True)
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
    """The event that caused it; None for a notification that a sender submitted."""
    whole_id: str | None = None
    """The submission to a list of lists that it is a part of."""
    whole_list: str | None = None
    """That list of lists."""
    is_draft: bool = False
    """Its text and targets are not created from its event yet."""
    severity: Severity | None = None
    """As the sender gave it, else the default that its list had when it arrived."""
    incident: str | None = None
    """The subject of the alarm: equal for the notifications that raise and clear it."""
    is_cleared: bool = False
    """Whether it reports that its incident is over."""

    @property
    def is_held(self) -> bool:
        return self.held_by is not None

    @property
    def is_limited(self) -> bool:
        """Held because of a rate, or because a provider asked to wait (`core.delivery.holds`)."""
        return self.held_by is not None and self.held_by.startswith("rate")


@frozen(kw_only=True)
class Notification(Summary):
    """One row of the `notifications` table, with its targets if requested."""

    body: str
    type_data: dict[str, object] | None = None
    targets: tuple[Target, ...] = ()


def digest(submission: Submission) -> bytes:
    """The digest by which duplicates are found: SHA-256 of length-prefixed UTF-8 site, list name, subject and body, and
    of name and value of the alarm fields that were given."""
    subject, body = submission.subject.encode(), submission.body.encode()
    site, list_name = _prefixed(submission.provenance.site), _prefixed(submission.list_name)
    content = b"%b%b%b%b%b%b" % (site, list_name, _LENGTH(len(subject)), subject, _LENGTH(len(body)), body)
    for text in alarm_texts(submission.severity, submission.incident, submission.is_cleared):
        content += _prefixed(text)
    return sha256(content).digest()


def alarm_texts(severity: str | None, incident: str | None, is_cleared: bool) -> list[str]:
    """Name and value of each alarm field that was given, for digests."""
    texts = ["severity", str(severity)] if severity is not None else []
    texts += ["incident", incident] if incident is not None else []
    return [*texts, "is_cleared", "true"] if is_cleared else texts


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
