"""Events for the outbox: checked before anything is written."""

import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import PAYLOAD_BYTES_MAX
from fieldpost.core.events.outbox import OutboxEvent, check_outbox_event
from fieldpost.core.events.payload import DEPTH_MAX, encode_payload
from fieldpost.core.ids import is_id, precise_id

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


class EventType(StrEnum):
    SERVICE_DOWN = "SERVICE_DOWN"


def check(event_type: Any = "SERVICE_DOWN", payload: Any = None, **options: Any) -> OutboxEvent:
    given = (
        dict.fromkeys(("action", "resource", "attributes", "correlation_id", "order_key", "deliver_after")) | options
    )
    return check_outbox_event(event_type, {} if payload is None else payload, **given, now=NOW)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.req("EVT-11", "EVT-14")
@pytest.mark.parametrize("event_type", ["SERVICE_DOWN", "SSL_EXPIRING", "RESET_PASSWORD", "USER_CREATED", "x" * 100])
def test_event_types_of_the_design_are_valid(event_type: str) -> None:
    event = check(event_type, {"service": 7, "group": 2, "message": "down"})
    assert (event.event_type, event.payload) == (event_type, '{"service":7,"group":2,"message":"down"}')


def test_member_of_a_str_enum_is_its_text() -> None:
    assert type(check(EventType.SERVICE_DOWN).event_type) is str


@pytest.mark.req("DEC-85")
@pytest.mark.bad_input(43)
@pytest.mark.parametrize("event_type", ["", "SERVICE DOWN", "x" * 101, "x" * 1000, "a\x00", "é", "-x", 7, None, b"X"])
def test_invalid_event_type_names_the_rule(event_type: Any) -> None:
    with pytest.raises(InvalidInput, match="event_type must be 1 to 100 characters of") as raised:
        check(event_type)
    assert (raised.value.code, raised.value.field) == ("topic.name", "event_type")


@pytest.mark.req("DEC-36")
@pytest.mark.bad_input(42)
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ([1], "payload must be a dict, not list"),
        ("{}", "payload must be a dict, not str"),
        (b"{}", "payload must be a dict, not bytes"),
        ({"a": {"at": NOW}}, r"payload.a.at is a datetime, which JSON cannot hold"),
        ({"a": [1, {2}]}, r"payload.a\[1\] is a set"),
        ({"a": {1: 2}}, "names in payload.a must be str, got 1"),
        ({"a": float("nan")}, "payload cannot be encoded as JSON"),
        ({"a": float("inf")}, "payload cannot be encoded as JSON"),
        ({"a": "\x00"}, "payload.a must not contain a NUL character"),
        ({"a": ["x", {"\x00": 1}]}, "must not contain a NUL character"),
        ({"a": "\ud800"}, "payload must not contain a lone surrogate"),
        ({"\udfff": 1}, "payload must not contain a lone surrogate"),
        (nested(DEPTH_MAX + 1), "payload must not be nested deeper than 64 levels"),
        ({"a": "x" * (PAYLOAD_BYTES_MAX - 7)}, "payload is 262145 bytes, at most 262144"),
        ({"a": "é" * (PAYLOAD_BYTES_MAX // 2 - 3)}, "payload is 262146 bytes"),
    ],
)
def test_invalid_payload_names_the_member_and_the_rule(payload: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as raised:
        check(payload=payload)
    assert raised.value.field == "payload"


def test_payload_that_refers_to_itself_is_too_deep() -> None:
    payload: dict[str, Any] = {}
    payload["a"] = payload
    with pytest.raises(InvalidInput, match="nested deeper"):
        encode_payload(payload)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"a": "x" * (PAYLOAD_BYTES_MAX - 8)},
        nested(DEPTH_MAX),
        {"text": 'Größe 💡 "x" \\u0000 \r\n\t', "n": [1, 2.5, None, True, (1, 2)]},
        {"big": 2**70, "order": 1, "a": 2},
    ],
)
def test_valid_payload_keeps_its_values_and_order(payload: dict[str, Any]) -> None:
    text = encode_payload(payload)
    assert json.loads(text) == json.loads(json.dumps(payload))
    assert list(json.loads(text)) == list(payload)


@pytest.mark.parametrize("name", ["action", "resource", "correlation_id", "order_key"])
@pytest.mark.parametrize("value", ["", " x", "x" * 257, "a\nb", "\ud800", 7])
def test_invalid_label_names_the_argument(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"^{name} must") as raised:
        check(**{name: value})
    assert raised.value.field == name


@pytest.mark.parametrize(
    "attributes", [{"a b": "x"}, {"a": 1}, {"a": ""}, {f"a{n}": "x" for n in range(101)}, [("a", "b")]]
)
def test_invalid_attributes_are_rejected(attributes: Any) -> None:
    with pytest.raises(InvalidInput) as raised:
        check(attributes=attributes)
    assert str(raised.value.field).startswith("attributes")


@pytest.mark.parametrize(
    "value",
    [
        timedelta(seconds=-1),
        timedelta(days=3651),
        datetime(2026, 11, 16, 12),  # noqa: DTZ001
        NOW + timedelta(days=3651),
        60,
        "1h",
    ],
)
def test_invalid_time_of_delivery_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidInput, match="deliver_after must be a timedelta of 0 or more or a datetime with"):
        check(deliver_after=value)


@pytest.mark.parametrize("value", [timedelta(0), NOW, datetime.min.replace(tzinfo=UTC)])
def test_time_that_has_passed_means_at_once(value: Any) -> None:
    assert check(deliver_after=value).deliver_after is None


@pytest.mark.req("DEC-84")
def test_ids_sort_by_the_microsecond_and_are_valid() -> None:
    ids = [precise_id(NOW + timedelta(microseconds=step), bytes([255 - step % 256] * 10)) for step in range(0, 3000)]
    assert ids == sorted(ids)
    assert all(is_id(one) and one[14] == "7" for one in ids)
    assert len({precise_id(NOW, bytes([one] * 10)) for one in range(256)}) == 256
