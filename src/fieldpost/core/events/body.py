"""Bodies of webhooks: the same bytes at every attempt, because they depend on stored values alone.

The payload of an event is inserted as the text that was published, never parsed and written again.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

from fieldpost.core.events.event import Event
from fieldpost.core.notification import Provenance
from fieldpost.core.times import to_text

NOTIFICATION_TYPE = "fieldpost.notification"
"""The `type` of a webhook to a target of a list."""


class WebhookFormat(StrEnum):
    """The form of a subscription's bodies."""

    STANDARD = "standard"
    """`{"type", "timestamp", "data"}`, with topic, time and payload of the event."""
    CLOUDEVENTS = "cloudevents"
    """A CloudEvent 1.0 in structured JSON."""
    RAW = "raw"
    """The payload alone."""

    @property
    def content_type(self) -> str:
        return "application/cloudevents+json" if self is WebhookFormat.CLOUDEVENTS else "application/json"


def event_body(format: WebhookFormat, event: Event, recorded_at: datetime) -> bytes:
    """The body for an event. Its time is the one that the publisher reported, else the time of its recording."""
    at = to_text(event.occurred_at or recorded_at)
    match format:
        case WebhookFormat.STANDARD:
            fields: dict[str, object] = {"type": event.topic, "timestamp": at}
            if event.action is not None:
                fields["action"] = event.action
            if event.resource is not None:
                fields["resource"] = event.resource
            if event.attributes:
                fields["attributes"] = {name: event.attributes[name] for name in sorted(event.attributes)}
            return _with_data(fields, event.payload)
        case WebhookFormat.CLOUDEVENTS:
            fields = {
                "specversion": "1.0",
                "id": event.event_id,
                # A URI reference: names of applications may contain anything else.
                "source": quote(event.source, safe=":/"),
                "type": event.topic,
                "time": at,
                "datacontenttype": "application/json",
            }
            if event.resource is not None:
                fields["subject"] = event.resource
            return _with_data(fields, event.payload)
        case WebhookFormat.RAW:
            return event.payload.encode()


def notification_body(subject: str, body: str, provenance: Provenance | None, created_at: datetime) -> bytes:
    """The body for a notification to a list, in the standard format."""
    data: dict[str, object] = {"subject": subject, "body": body}
    if provenance is not None:
        data["provenance"] = _given(
            {
                "site": provenance.site,
                "instance": provenance.instance,
                "script": provenance.script,
                "execution_id": provenance.execution_id,
                "parent_execution_id": provenance.parent_execution_id,
            }
        )
    return _with_data({"type": NOTIFICATION_TYPE, "timestamp": to_text(created_at)}, _dump(data))


def _with_data(fields: Mapping[str, object], data: str) -> bytes:
    return f'{_dump(fields)[:-1]},"data":{data}}}'.encode()


def _dump(value: Mapping[str, object]) -> str:
    return _encode(value)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
