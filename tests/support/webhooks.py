"""One webhook as the adapter gets it."""

from datetime import UTC, datetime
from typing import Any

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.events.event import Event, RecordedEvent
from fieldpost.core.events.signature import make_signing_secret
from fieldpost.core.ids import NotificationId

SECRET = make_signing_secret(bytes(range(32)))
EVENT = Event(
    event_id="00000000-0000-7000-8000-000000000001",
    topic="orders.created",
    source="app:shop",
    payload='{ "order" : 17 }',
    correlation_id="trace-ü1",
)
ID = NotificationId("0198c8a0-0000-7000-8000-000000000001")
DATED = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


def webhook(url: str, **settings: Any) -> Envelope:
    """The event above for a subscription with this URL and these settings."""
    return Envelope(
        notification_id=ID,
        list_name="billing",
        subject="orders.created",
        body="",
        targets=("subscription:1",),
        settings={"url": url, "secret": SECRET, "quick_tries_base_s": 0.01, **settings},
        dated=DATED,
        gate=lambda: None,
        event=RecordedEvent(EVENT, DATED),
    )
