"""Request bodies and views of the local API. The OpenAPI document is generated from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fieldpost.core.sites.message import CallRecord
from fieldpost.link.http.body import Body
from fieldpost.link.http.view import View, ViewField
from fieldpost.site.buffer.event_log import SiteEvent
from fieldpost.site.forwarding.forwarder import ForwardHealth
from fieldpost.site.notify import NotificationStatus
from fieldpost.site.pair.pair_status import ComparedRows, PairStatus


class _Body(Body, frozen=True, kw_only=True):
    """Fields that all request bodies share."""

    key: str | None = None
    """Idempotency key: a repeated request with the same key and content returns the same id."""
    instance: str | None = None
    """The machine or unit concerned."""
    script: str | None = None
    """The script or program that sends this."""
    execution_id: str | None = None
    """The run of the script."""
    parent_execution_id: str | None = None
    """The run that started this run."""


class Send(_Body, frozen=True, kw_only=True):
    """One notification."""

    list_name: str
    """The list to notify. Lists are defined at central."""
    subject: str
    """One line, at most 998 bytes of UTF-8."""
    body: str = ""
    """Plain text, at most 256 KiB of UTF-8."""
    severity: str | None = None
    """info, warning, error or critical; without it, the default of the list."""
    incident: str | None = None
    """The subject of the alarm, at most 255 characters: the same text when it is raised and cleared."""
    is_cleared: bool = False
    """Whether this reports that the incident is over."""


class ExternalCallBody(_Body, frozen=True, kw_only=True):
    """One call of an external system, with at most one of `json`, `body` and `body_base64`."""

    method: str
    """GET, POST, PUT, PATCH or DELETE."""
    path: str
    """The path below the system's URL; starts with a slash."""
    query: dict[str, Any] | None = None
    """Names and values: strings, numbers, booleans, or lists of them."""
    headers: dict[str, str] | None = None
    json: Any = None
    """A body to send as JSON."""
    body: str | None = None
    """A body to send as text."""
    body_base64: str | None = None
    """A binary body, in base64."""


class DatabaseWriteBody(_Body, frozen=True, kw_only=True):
    """One write to a database."""

    statement: str
    """The name of a statement in `site.toml`, or SQL if the connection allows it."""
    parameters: dict[str, str | int | float | bool | None] | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A notification that was written to the buffer."""

    notification_id: str


@dataclass(frozen=True, slots=True)
class LocalCalls:
    """A page of calls."""

    calls: Sequence[CallRecord]
    next_after: int


@dataclass(frozen=True, slots=True)
class LocalEvents:
    """A page of the event log."""

    events: Sequence[SiteEvent]
    next_before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """The state of this site."""

    site: str
    central_url: str
    version: str
    waiting: Mapping[str, int]
    parked: int
    rejected: int
    oldest_created_at: datetime | None
    link: ForwardHealth
    pair: PairStatus | None = None


class Promotion(Body, frozen=True, kw_only=True):
    """A planned switch of a pair."""

    reason: str = ""
    """The reason, for the event log and central's audit; required with `is_forced`."""
    is_forced: bool = False
    """Take the leadership without the other node."""


SENT = View(
    "SentNotification",
    Sent,
    "notification_id",
    description="The notification is on this machine's disk and will be forwarded.",
)
NOTIFICATION = View(
    "NotificationView",
    NotificationStatus,
    "notification_id status retry_count last_error enqueued_at delivered_at next_attempt_at",
    description="The status of a notification. `forwarding` and `rejected` come from this site, the others from "
    "central.",
)
CALL = View(
    "CallView",
    CallRecord,
    "call_id category target_summary status retry_count last_error http_status instance script",
    "execution_id parent_execution_id created_at updated_at terminal_at version change_sequence",
    description="The status of an external call or a database write: `pending` or `retrying` (will be retried), "
    "`parked` (waits for a person), `delivered`, `failed` or `discarded`.",
)
CALLS = View(
    "LocalCallPage",
    LocalCalls,
    ViewField("calls", view=CALL),
    "next_after",
    description="One page of external calls and database writes, by last change. Pass `next_after` as `after` to read "
    "on, now or later; later changes are included.",
)
EVENT = View(
    "EventView",
    SiteEvent,
    "sequence occurred_at kind severity category message_id target instance script text",
    description="One entry of the site's event log.",
)
EVENTS = View(
    "EventPage",
    LocalEvents,
    ViewField("events", view=EVENT),
    "next_before",
    description="One page of the event log, newest first. Pass `next_before` as `before` to read older events; it is "
    "null on the last page.",
)
LINK = View(
    "LinkView",
    ForwardHealth,
    "is_ok error_code error failing_since last_ok_at",
    description="The state of the link to central.",
)
PAIR = View(
    "PairView",
    PairStatus,
    "role node epoch grounds peer peer_age_s peer_version lag_changes lag_s switched_at switch_reason differences",
    description="This node of the site's pair, and the lag of the other node's copy.",
)
COMPARED = View(
    "ComparedRowsView",
    ComparedRows,
    "compared repaired skipped",
    description="The comparison of the rows of both nodes, in ranges of up to 5,000 rows.",
)
SITE = View(
    "LocalSiteView",
    LocalState,
    "site central_url version waiting parked rejected oldest_created_at",
    ViewField("link", view=LINK),
    ViewField("pair", view=PAIR),
    description="The state of this site; `waiting` counts the messages in the buffer by category.",
)
