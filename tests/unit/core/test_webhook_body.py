"""Bodies of webhooks: three formats, the payload byte for byte, the same bytes every time."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.events.body import WebhookFormat, event_body, notification_body
from fieldpost.core.events.event import Event
from fieldpost.core.notification import Provenance

AT = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
PAYLOAD = '{ "order" : 17,  "euro": "€", "n": 1.10, "n": 2 }'


def event(**more: object) -> Event:
    fields = {
        "event_id": "00000000-0000-7000-8000-000000000001",
        "topic": "orders.created",
        "source": "app:Web Shop",
        "payload": PAYLOAD,
    }
    return Event(**{**fields, **more})  # type: ignore[arg-type]


def test_standard_has_type_time_and_the_payload_as_published() -> None:
    body = event_body(WebhookFormat.STANDARD, event(), AT)
    assert (
        body == ('{"type":"orders.created","timestamp":"2026-11-16T12:00:00.000000Z","data":' + PAYLOAD + "}").encode()
    )


@pytest.mark.req("WHK-01")
def test_standard_adds_action_resource_and_attributes_where_given() -> None:
    full = event(action="create", resource="order/17", attributes={"b": "2", "a": "1"}, occurred_at=AT.replace(hour=9))
    assert json.loads(event_body(WebhookFormat.STANDARD, full, AT)) == {
        "type": "orders.created",
        "timestamp": "2026-11-16T09:00:00.000000Z",
        "action": "create",
        "resource": "order/17",
        "attributes": {"a": "1", "b": "2"},
        "data": json.loads(PAYLOAD),
    }


def test_cloudevents_is_structured_json_1_0() -> None:
    body = event_body(WebhookFormat.CLOUDEVENTS, event(resource="order/17"), AT)
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": "00000000-0000-7000-8000-000000000001",
        "source": "app:Web%20Shop",
        "type": "orders.created",
        "subject": "order/17",
        "time": "2026-11-16T12:00:00.000000Z",
        "datacontenttype": "application/json",
        "data": json.loads(PAYLOAD),
    }
    assert PAYLOAD.encode() in body
    assert WebhookFormat.CLOUDEVENTS.content_type == "application/cloudevents+json"


def test_raw_format_is_the_payload() -> None:
    assert event_body(WebhookFormat.RAW, event(action="create"), AT) == PAYLOAD.encode()


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=5), st.sampled_from(WebhookFormat)
)
@pytest.mark.dec("DEC-49")
def test_the_order_of_attributes_does_not_change_the_bytes(attributes: dict[str, str], format: WebhookFormat) -> None:
    turned = dict(reversed(attributes.items()))
    assert event_body(format, event(attributes=attributes), AT) == event_body(format, event(attributes=turned), AT)


@pytest.mark.dec("DEC-62")
def test_a_notification_to_a_list_is_of_the_standard_format() -> None:
    body = notification_body("Pump 3", "It stopped.\n", Provenance("plant-7", script="check.py"), AT)
    assert json.loads(body) == {
        "type": "fieldpost.notification",
        "timestamp": "2026-11-16T12:00:00.000000Z",
        "data": {
            "subject": "Pump 3",
            "body": "It stopped.\n",
            "provenance": {"site": "plant-7", "script": "check.py"},
        },
    }
