"""Request and response bodies of the local API. The OpenAPI document is generated from these structs."""

from typing import Any, TypeVar

import msgspec

from fieldpost.core.sites.message import CallRecord
from fieldpost.core.times import to_text
from fieldpost.site.buffer.event_log import SiteEvent
from fieldpost.site.notify import NotificationStatus

V = TypeVar("V", bound=msgspec.Struct)


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields that all request bodies share. Unknown fields are rejected."""

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


class SentNotification(msgspec.Struct, frozen=True):
    """The notification is on this machine's disk and will be forwarded."""

    notification_id: str


class NotificationView(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a notification. `forwarding` and `rejected` come from this site, the others from central."""

    notification_id: str
    status: str
    retry_count: int
    last_error: str | None
    enqueued_at: str | None
    delivered_at: str | None
    next_attempt_at: str | None


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an external call or a database write."""

    call_id: str
    category: str
    target_summary: str
    status: str
    """`pending` or `retrying` (will be retried), `parked` (waits for a person), `delivered`, `failed` or
    `discarded`."""
    retry_count: int
    last_error: str | None
    http_status: int | None
    instance: str | None
    script: str | None
    execution_id: str | None
    parent_execution_id: str | None
    created_at: str
    updated_at: str
    terminal_at: str | None
    version: int
    change_sequence: int


class LocalCallPage(msgspec.Struct, frozen=True):
    """One page of external calls and database writes, by last change."""

    calls: list[CallView]
    next_after: int
    """Pass as `after` to read on, now or later; later changes are included."""


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the site's event log."""

    sequence: int
    occurred_at: str
    kind: str
    severity: str
    category: str | None
    message_id: str | None
    target: str | None
    instance: str | None
    script: str | None
    text: str


class EventPage(msgspec.Struct, frozen=True):
    """One page of the event log, newest first."""

    events: list[EventView]
    next_before: int | None
    """Pass as `before` to read older events; null on the last page."""


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the link to central."""

    is_ok: bool
    error_code: str | None
    error: str | None
    failing_since: str | None
    last_ok_at: str | None


class LocalSiteView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of this site."""

    site: str
    central_url: str
    version: str
    waiting: dict[str, int]
    """Waiting messages by category."""
    parked: int
    rejected: int
    oldest_created_at: str | None
    link: LinkView


class LocalProblem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of every error response (RFC 9457)."""

    type: str
    """`urn:fieldpost:error:` followed by the code."""
    title: str
    status: int
    code: str
    """Stable, for programs."""
    detail: str
    """For people."""
    field: str | None = None
    hint: str | None = None
    call_id: str | None = None
    """The call that the target refused for good; its status is `failed`."""
    http_status: int | None = None
    """The HTTP status that the external system returned."""


def notification_view(status: NotificationStatus) -> NotificationView:
    return NotificationView(
        notification_id=status.notification_id,
        status=status.status,
        retry_count=status.retry_count,
        last_error=status.last_error,
        enqueued_at=_text(status.enqueued_at),
        delivered_at=_text(status.delivered_at),
        next_attempt_at=_text(status.next_attempt_at),
    )


def call_view(record: CallRecord) -> CallView:
    return _view(CallView, record)


def event_view(entry: SiteEvent) -> EventView:
    return _view(EventView, entry)


def _view(kind: type[V], record: object) -> V:
    """A view struct filled from the attributes of a record, with times as text."""
    return kind(**{name: _text(getattr(record, name)) for name in kind.__struct_fields__})


def _text(value: Any) -> Any:
    return to_text(value) if hasattr(value, "isoformat") else value
