"""Events: something that happened at an application, recorded once with its payload."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.topic import ATTRIBUTES_MAX, check_attribute_name, check_topic_name
from fieldpost.core.ids import derived_id, is_id, refuse_derived
from fieldpost.core.text import check_label
from fieldpost.core.times import from_text, to_text

PAYLOAD_BYTES_MAX = 256 * 1024
EVENTS_MAX = 500
"""Events per request."""
REQUEST_BYTES_MAX = 4 * 1024 * 1024
_TIME_LENGTH = 14
"""The length of the time in a UUIDv7: 48 bits, with two dashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. Its id is its idempotency key: the same id with other content or from another source is a conflict."""

    event_id: str
    topic: str
    source: str
    """The publisher: `app:NAME`."""
    payload: str
    """A JSON object, byte for byte as it was published."""
    action: str | None = None
    resource: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Values to filter by; names are case-sensitive, values compare case-insensitively."""
    occurred_at: datetime | None = None
    """As the publisher reported it; for display only."""
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as it was recorded; in a list without its payload."""

    event: Event
    created_at: datetime
    match_count: int = 0
    """How many subscriptions and routes matched it when it was recorded."""


def check_event(
    *,
    event_id: object,
    topic: object,
    source: str,
    payload: bytes,
    action: str | None = None,
    resource: str | None = None,
    attributes: Mapping[str, str] | None = None,
    occurred_at: str | None = None,
    correlation_id: str | None = None,
) -> Event:
    """The event, or InvalidInput naming the field and the rule. `payload` is the JSON text as it arrived."""
    if not is_id(event_id):
        raise InvalidInput(
            "event.bad_id", "event_id must be a UUID of 36 lower-case characters with dashes", field="event_id"
        )
    refuse_derived(str(event_id), "event.bad_id", "event_id")
    return Event(
        event_id=str(event_id),
        topic=check_topic_name(topic),
        source=source,
        payload=_check_payload(payload),
        action=_optional(action, "action"),
        resource=_optional(resource, "resource"),
        attributes=check_attributes(attributes or {}),
        occurred_at=_check_time(occurred_at),
        correlation_id=_optional(correlation_id, "correlation_id"),
    )


def check_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes as given, or InvalidInput."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise InvalidInput(
            "event.attributes",
            f"attributes has {len(attributes)} entries, at most {ATTRIBUTES_MAX}",
            field="attributes",
        )
    return {check_attribute_name(name): check_label(value, f"attributes.{name}") for name, value in attributes.items()}


def event_digest(event: Event) -> bytes:
    """The identity of an event's content: SHA-256 over the length-prefixed UTF-8 of its fields."""
    parts = [event.source, event.topic, event.action or "", event.resource or ""]
    parts += [event.correlation_id or "", to_text(event.occurred_at) if event.occurred_at else ""]
    for name in sorted(event.attributes):
        parts += [name, event.attributes[name]]
    parts.append(event.payload)
    encoded = [part.encode() for part in parts]
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in encoded)).digest()


def notification_id_of(event_id: str, subscription_id: str) -> str:
    """The id of the notification that an event causes for a subscription, the same at every publication.

    It begins with the time in the event's id: random ids would touch a random page of every index for each row.
    """
    return derived_notification_id(event_id, subscription_id)


def derived_notification_id(event_id: str, *parts: str) -> str:
    """The id of a notification of this event, derived from its receiver."""
    return event_id[:_TIME_LENGTH] + derived_id("event", event_id, *parts)[_TIME_LENGTH:]


def _check_payload(payload: bytes) -> str:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise InvalidInput(
            "event.payload_too_long",
            f"payload is {len(payload)} bytes, at most {PAYLOAD_BYTES_MAX}",
            field="payload",
        )
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("event.payload", f"payload is not UTF-8 at byte {error.start}", field="payload") from None
    if not text.lstrip(" \t\r\n").startswith("{"):
        raise InvalidInput("event.payload", "payload must be a JSON object", field="payload")
    return text


def _check_time(text: str | None) -> datetime | None:
    moment = from_text(text) if text is not None else None
    if text is not None and moment is None:
        raise InvalidInput(
            "event.occurred_at",
            "occurred_at must be an RFC 3339 time such as 2026-11-15T08:00:00Z",
            field="occurred_at",
        )
    return moment


def _optional(value: str | None, name: str) -> str | None:
    return None if value is None else check_label(value, name)
