"""What the local API takes and gives, as structs: the OpenAPI document is made from them."""

from typing import Any, TypeVar

import msgspec

from fieldpost.core.sites.message import CallRecord
from fieldpost.core.times import to_text
from fieldpost.site.buffer.event_log import SiteEvent
from fieldpost.site.notify import NotificationStatus

V = TypeVar("V", bound=msgspec.Struct)


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all bodies may hold; a field that nobody knows is refused by its name."""

    key: str | None = None
    """Your own name for it: made again with the same key and content it is the same one, with the same id."""
    instance: str | None = None
    """Which machine or unit it is about."""
    script: str | None = None
    """Which script or program it comes from."""
    execution_id: str | None = None
    """The run of that script."""
    parent_execution_id: str | None = None
    """The run that started this run."""


class Send(_Body, frozen=True, kw_only=True):
    """One notification."""

    list_name: str
    """Whom to notify. Any list; central knows who that is."""
    subject: str
    """One line, at most 998 bytes of UTF-8."""
    body: str = ""
    """Plain text, at most 256 KiB of UTF-8."""


class ExternalCallBody(_Body, frozen=True, kw_only=True):
    """One call of an external system; at most one of `json`, `body` and `body_base64`."""

    method: str
    """GET, POST, PUT, PATCH or DELETE."""
    path: str
    """Below the system's URL, beginning with a slash."""
    query: dict[str, Any] | None = None
    """Names and values: texts, numbers, truth values, or lists of them."""
    headers: dict[str, str] | None = None
    json: Any = None
    """What to send as JSON."""
    body: str | None = None
    """What to send as text."""
    body_base64: str | None = None
    """What to send as bytes."""


class DatabaseWriteBody(_Body, frozen=True, kw_only=True):
    """One write through a database connection."""

    statement: str
    """The name of a statement that `site.toml` defines, or SQL where the connection allows it."""
    parameters: dict[str, str | int | float | bool | None] | None = None


class SentNotification(msgspec.Struct, frozen=True):
    """The notification is on this machine's disk and will be forwarded."""

    notification_id: str


class NotificationView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a notification stands; `forwarding` and `rejected` are this site's words, the others central's."""

    notification_id: str
    status: str
    retry_count: int
    last_error: str | None
    enqueued_at: str | None
    delivered_at: str | None
    next_attempt_at: str | None


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """Where an external call or a database write stands."""

    call_id: str
    category: str
    target_summary: str
    status: str
    """`delivered`; `pending` or `retrying`: it will be tried again; `parked`: it waits for a person; `failed`;
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
    """Some of the calls and writes, in the order of their last change."""

    operations: list[CallView]
    next_after: int
    """Ask with `after` this to read on, now or later: what has changed meanwhile comes then."""


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
    """Some of the event log, newest first."""

    events: list[EventView]
    next_before: int | None
    """Ask with `before` this for older ones; null when there are none."""


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """How forwarding to central goes."""

    is_ok: bool
    error_code: str | None
    error: str | None
    failing_since: str | None
    last_ok_at: str | None


class LocalSiteView(msgspec.Struct, frozen=True, kw_only=True):
    """How this site is."""

    site: str
    central_url: str
    version: str
    waiting: dict[str, int]
    """How many messages wait, by category."""
    parked: int
    rejected: int
    oldest_created_at: str | None
    link: LinkView


class LocalProblem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of every answer that is not a success (RFC 9457)."""

    type: str
    """`urn:fieldpost:error:` and the code."""
    title: str
    status: int
    code: str
    """Stable, for programs."""
    detail: str
    """For people."""
    field: str | None = None
    hint: str | None = None
    call_id: str | None = None
    """Of a call that was refused for good: its status is `failed`."""
    http_status: int | None = None
    """What the external system answered to it."""


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


def operation_view(record: CallRecord) -> CallView:
    return _view(CallView, record)


def event_view(entry: SiteEvent) -> EventView:
    return _view(EventView, entry)


def _view(kind: type[V], record: object) -> V:
    """The struct's fields from a record that has the same, with times as text."""
    return kind(**{name: _text(getattr(record, name)) for name in kind.__struct_fields__})


def _text(value: Any) -> Any:
    return to_text(value) if hasattr(value, "isoformat") else value
