"""The event outbox: statuses and rows of `event_outbox`, the table in an application's database.

    PENDING ──claim──▶ PROCESSING ──published, all delivered──▶ SENT
       ▲                 │    ▲  └──a matching route has no template──▶ TEMPLATE_NOT_FOUND
       └─central away────┘    └─claim─ FAILED ◀──unanswered, rejected, or parked at central

`published_at` separates publishing from following: a row without it is published by the relay, a row with it follows
the notifications of its event at central. A claim (`claim_owner`, `claim_token`, `lease_until`) covers publishing only
and is not a status: an expired one leaves a PROCESSING row that another relay takes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import check_attributes
from fieldpost.core.events.payload import encode_payload
from fieldpost.core.events.topic import check_topic_name
from fieldpost.core.text import check_label

EVENT_TYPE_LENGTH_MAX = 100
"""Characters of an event type in the outbox; a topic name may have 128."""
DELIVER_AFTER_DAYS_MAX = 3650
OPEN_MAX = 2**53
AGE_S_MAX = 100 * 366 * 86_400


class OutboxStatus(StrEnum):
    """The status of a row in `event_outbox`."""

    PENDING = "PENDING"
    """Waits to be published."""
    PROCESSING = "PROCESSING"
    """Claimed by a relay, or published and not yet delivered to everybody."""
    SENT = "SENT"
    """Every notification of the event is delivered, or there is none."""
    FAILED = "FAILED"
    """Not published (the relay retries it), or a notification is parked or discarded at central."""
    TEMPLATE_NOT_FOUND = "TEMPLATE_NOT_FOUND"
    """Published, but a matching route has no template."""


CLAIMABLE = (OutboxStatus.PENDING, OutboxStatus.PROCESSING, OutboxStatus.FAILED)
"""The statuses of unpublished rows; a claim also needs `published_at` null, a due `due_at` and no live lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxRow:
    """One row of `event_outbox`: an event and how far it got."""

    event_outbox_id: str
    """The id of the event at central."""
    event_type: str
    payload: str
    """The text of a JSON object."""
    status: OutboxStatus
    retries: int
    """How often publishing went unanswered or was rejected."""
    created_at: datetime
    due_at: datetime
    action: str | None = None
    resource: str | None = None
    attributes: str | None = None
    """The text of a JSON object whose values are strings."""
    correlation_id: str | None = None
    order_key: str | None = None
    last_attempt_at: datetime | None = None
    published_at: datetime | None = None
    last_error: str | None = None
    """`CODE: message` of the last failure."""
    claim_owner: str | None = None
    claim_token: int = 0
    lease_until: datetime | None = None


class OutboxEvent(NamedTuple):
    """A checked event, ready to be inserted."""

    event_type: str
    payload: str
    action: str | None
    resource: str | None
    attributes: str | None
    correlation_id: str | None
    order_key: str | None
    deliver_after: datetime | timedelta | None
    """None for at once; a timedelta counts from the database's clock."""


def check_outbox_event(
    event_type: str,
    payload: Mapping[str, Any],
    action: str | None,
    resource: str | None,
    attributes: Mapping[str, str] | None,
    correlation_id: str | None,
    order_key: str | None,
    deliver_after: datetime | timedelta | None,
    now: datetime,
) -> OutboxEvent:
    """The event with its JSON texts, or InvalidInput naming the argument and the rule."""
    return OutboxEvent(
        check_topic_name(
            event_type.value if isinstance(event_type, StrEnum) else event_type, "event_type", EVENT_TYPE_LENGTH_MAX
        ),
        encode_payload(payload),
        None if action is None else check_label(action, "action"),
        None if resource is None else check_label(resource, "resource"),
        _encode_attributes(attributes) if attributes else None,
        None if correlation_id is None else check_label(correlation_id, "correlation_id"),
        None if order_key is None else check_label(order_key, "order_key"),
        None if deliver_after is None else _check_deliver_after(deliver_after, now),
    )


def check_outbox_report(open_count: int, oldest_age_s: float) -> None:
    """Raise InvalidInput, naming the figure, if a relay's report about its outbox is out of range."""
    for name, value, most in (("open_count", open_count, OPEN_MAX), ("oldest_age_s", oldest_age_s, AGE_S_MAX)):
        if not 0 <= value <= most:
            raise InvalidInput(f"outbox.{name}", f"{name} must be between 0 and {most}", field=name)


def _encode_attributes(attributes: Mapping[str, str]) -> str:
    if not isinstance(attributes, Mapping):
        raise InvalidInput(
            "event.attributes", f"attributes must be a dict, not {type(attributes).__name__}", field="attributes"
        )
    return json.dumps(check_attributes(attributes), ensure_ascii=False, separators=(",", ":"))


def _check_deliver_after(value: datetime | timedelta, now: datetime) -> datetime | timedelta | None:
    longest = timedelta(days=DELIVER_AFTER_DAYS_MAX)
    if isinstance(value, timedelta) and timedelta(0) <= value <= longest:
        return value or None
    if isinstance(value, datetime) and value.utcoffset() is not None and value - now <= longest:
        return value if value > now else None
    raise InvalidInput(
        "event.deliver_after",
        "deliver_after must be a timedelta of 0 or more or a datetime with a time zone,"
        f" at most {DELIVER_AFTER_DAYS_MAX} days from now",
        field="deliver_after",
    )
