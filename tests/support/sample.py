"""Values for tests of the rules: a notification as one finds it in the table, at a fixed moment."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fieldpost.core.ids import NotificationId
from fieldpost.core.notification import Notification, Provenance, Status, Target, TargetStatus, list_key

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DUE, REACHED, FAILED = TargetStatus.DUE, TargetStatus.DELIVERED, TargetStatus.FAILED


def a_notification(status: Status = Status.PENDING, *targets: Target, **more: Any) -> Notification:
    """A notification in this status, with the times and the error that go with it."""
    given: dict[str, Any] = {
        "notification_id": NotificationId("019a8b3c-0000-7000-8000-000000000001"),
        "type": "email",
        "list_name": "ops",
        "subject": "Pump 3 stopped",
        "body": "No flow since 08:14.",
        "provenance": Provenance("plant-7"),
        "delivery_key": list_key("ops"),
        "created_at": NOW - 5 * MINUTE,
        "cycle_started_at": NOW - 5 * MINUTE,
        "due_at": None if status.is_terminal else NOW - MINUTE,
        "terminal_at": NOW - MINUTE if status.is_terminal else None,
        "delivered_at": NOW - MINUTE if status is Status.DELIVERED else None,
        "next_attempt_at": NOW - MINUTE if status is Status.RETRYING else None,
        "retry_count": 1 if status is Status.RETRYING else 0,
        "last_error": "451 try later" if status in (Status.RETRYING, Status.PARKED) else None,
    }
    return Notification(status=status, targets=targets, **given | more)
