"""`/api/v1/events`: publishing, verdicts, search, and who sees payloads."""

import json
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from fieldpost.central.store.events import events, subscriptions, topics
from fieldpost.core.actor import Role
from fieldpost.core.events.event import PAYLOAD_BYTES_MAX, REQUEST_BYTES_MAX
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import derived_id
from support.front import ADMIN, Front

PATH = "/api/v1/events"
ID = "0198c8a0-0000-7000-8000-{n:012d}"
PAYLOAD = '{ "order" : 17,\n "euro": "€", "a":1, "a":2, "n": 1.0e2 }'


def body(n: int = 1, payload: str = PAYLOAD, **more: Any) -> str:
    """An event as JSON text, with its payload as given."""
    fields = {"event_id": ID.format(n=n), "topic": "orders.created", **more}
    return json.dumps(fields)[:-1] + f', "payload": {payload}' + "}"


async def post(client: httpx2.AsyncClient, content: str | bytes) -> httpx2.Response:
    return await client.post(PATH, content=content, headers={"content-type": "application/json"})


def batch(*given: str) -> str:
    return '{"events": [' + ", ".join(given) + "]}"


async def subscribe(front: Front, name: str, number: int = 1) -> Subscription:
    made = Subscription(subscription_id=ID.format(n=9000 + number), name=name, owner="team", filter=(FilterEntry(),))
    await front.centre.store.write(subscriptions.add, made, front.clock.now())
    return made


@pytest.fixture
async def shop(front: Front) -> Any:
    """An application with its own token, and a topic to publish to."""
    front.tokens["shop"] = (await front.operate.tokens.add(ADMIN, "shop", Role.PUBLISHER, owner="viewer")).token
    await front.centre.store.write(topics.add, Topic(name="orders.created"), front.clock.now())
    async with front.client("shop") as client:
        yield client


@pytest.mark.req("DEC-43")
async def test_an_event_is_published_once_and_shown_with_its_payload_byte_for_byte(
    front: Front, shop: httpx2.AsyncClient
) -> None:
    await subscribe(front, "billing")
    more = {"action": "create", "resource": "order/17", "attributes": {"region": "North"}, "correlation_id": "c-1"}
    sent = await post(shop, body(occurred_at="2026-11-15T08:00:00Z", **more))
    assert (sent.status_code, sent.json()) == (201, {"event_id": ID.format(n=1), "verdict": "accepted"})
    again = await post(shop, body(occurred_at="2026-11-15T08:00:00Z", **more))
    assert (again.status_code, again.json()["verdict"]) == (200, "duplicate")
    shown = await shop.get(f"{PATH}/{ID.format(n=1)}")
    assert f'"payload":{PAYLOAD},' in shown.text
    detail = shown.json()
    assert {name: detail[name] for name in more} == more
    assert (detail["source"], detail["match_count"], detail["counts"]) == ("app:shop", 1, {"pending": 1})
    [resulting] = detail["notifications"]
    assert (resulting["receiver"], resulting["status"]) == ("billing", "pending")
    notification = await shop.get(f"/api/v1/notifications/{resulting['notification_id']}")
    assert notification.json()["source_site"] == "app:shop", "what results from an own event is its own"


@pytest.mark.req("DEC-43")
async def test_each_event_of_a_request_gets_its_own_verdict(front: Front, shop: httpx2.AsyncClient) -> None:
    given = [
        body(1),
        body(1),
        body(1, "{}"),
        body(2, topic="nobody.knows"),
        body(3, payload="[1]"),
        '{"event_id": 4}',
        body(5, colour="red"),
        body(6),
    ]
    answer = await post(shop, batch(*given))
    assert answer.status_code == 200
    assert [(one["event_id"][-1:], one["verdict"], one["code"]) for one in answer.json()["results"]] == [
        ("1", "accepted", None),
        ("1", "duplicate", None),
        ("1", "rejected", "event.conflict"),
        ("2", "rejected", "topic.unknown"),
        ("3", "rejected", "event.payload"),
        ("", "rejected", "body.invalid"),
        ("5", "rejected", "body.invalid"),
        ("6", "accepted", None),
    ]
    listed = (await shop.get(PATH)).json()["events"]
    assert sorted(one["event_id"][-1] for one in listed) == ["1", "6"]


@pytest.mark.bad_input(42)
@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ("[]", "event.payload"),
        ('"text"', "event.payload"),
        ("null", "event.payload"),
        ("17", "event.payload"),
        ('{"a":1,}', "body.invalid"),
        ("{'a':1}", "body.invalid"),
        ('{"a":NaN}', "body.invalid"),
        ('{"a":"\x00"}', "body.invalid"),
        ('{"a":' + "[" * 5000 + "]" * 5000 + "}", "body.invalid"),
        ('{"a":"' + "x" * PAYLOAD_BYTES_MAX + '"}', "event.payload_too_long"),
        (b'{"a":"\xff"}', "event.payload"),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_payload_other_than_a_limited_json_object_is_rejected_and_nothing_is_stored(
    front: Front, shop: httpx2.AsyncClient, payload: str | bytes, code: str
) -> None:
    raw = payload if isinstance(payload, bytes) else payload.encode()
    answer = await post(shop, body(1, "{}").encode().replace(b'"payload": {}', b'"payload": ' + raw))
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert (await shop.get(PATH)).json()["events"] == []


@pytest.mark.bad_input(42)
async def test_a_payload_at_the_limit_with_secret_looking_keys_is_stored_byte_exact_and_never_logged(
    front: Front, shop: httpx2.AsyncClient
) -> None:
    secret = '{"password": "hunter2", "api_key": "k-99", "fill": "'
    payload = secret + "x" * (PAYLOAD_BYTES_MAX - len(secret) - 2) + '"}'
    with capture_logs() as lines:
        assert (await post(shop, body(1, payload))).status_code == 201
        assert (await post(shop, body(1, payload.replace("hunter2", "hunter3")))).status_code == 409
    assert lines, "the conflict is logged"
    assert "hunter" not in str(lines)
    stored = await front.centre.store.read(events.get, ID.format(n=1))
    assert stored is not None
    assert stored.event.payload == payload


@pytest.mark.bad_input(43)
@pytest.mark.parametrize(
    "topic", ["two words", "x" * 1000, "x" * 129, "line\nbreak", "bell\x07", "", "ünïcode", ".dot", "a/b", 17, None]
)
async def test_a_topic_outside_its_pattern_is_refused_naming_field_and_rule(
    front: Front, shop: httpx2.AsyncClient, topic: object
) -> None:
    answer = await post(shop, body(1, topic=topic))
    assert (answer.status_code, answer.json()["field"]) == (422, "topic")
    assert answer.json()["code"] == ("topic.name" if isinstance(topic, str) else "body.invalid")
    (verdict,) = (await post(shop, batch(body(1, topic=topic)))).json()["results"]
    assert verdict["verdict"] == "rejected"


@pytest.mark.parametrize(
    ("more", "code", "field"),
    [
        ({"event_id": "no id"}, "event.bad_id", "event_id"),
        ({"event_id": derived_id("app:shop", "x")}, "event.bad_id", "event_id"),
        ({"topic": "not.registered"}, "topic.unknown", "topic"),
        ({"occurred_at": "yesterday"}, "event.occurred_at", "occurred_at"),
        ({"attributes": {"a b": "x"}}, "attribute.name", "attributes"),
        ({"attributes": {f"a{n}": "x" for n in range(101)}}, "event.attributes", "attributes"),
        ({"attributes": {"a": {"nested": 1}}}, "body.invalid", "attributes[...]"),
        ({"resource": "x" * 300}, "text.too_long", "resource"),
        ({"action": "two\nlines"}, "text.control", "action"),
    ],
    ids=str,
)
async def test_an_invalid_field_is_refused_naming_field_and_rule(
    front: Front, shop: httpx2.AsyncClient, more: dict[str, Any], code: str, field: str
) -> None:
    answer = await post(shop, body(1, **more))
    assert (answer.status_code, answer.json()["code"], answer.json().get("field")) == (422, code, field)


async def test_a_request_beyond_its_limits_is_refused_as_a_whole(front: Front, shop: httpx2.AsyncClient) -> None:
    for content, status, code in (
        (batch(), 422, "event.too_many"),
        (batch(*(body(n, "{}") for n in range(501))), 422, "event.too_many"),
        ("[]", 422, "body.invalid"),
        ("{", 422, "body.invalid"),
        ('{"events": 1}', 422, "body.invalid"),
        ('{"events": [], "more": 1}', 422, "body.invalid"),
        (" " * (REQUEST_BYTES_MAX + 1), 413, "http.too_large"),
    ):
        answer = await post(shop, content)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    whole = await post(shop, batch(*(body(n, "{}") for n in range(500))))
    assert {one["verdict"] for one in whole.json()["results"]} == {"accepted"}


async def test_payloads_are_visible_to_operators_administrators_and_the_publisher_only(
    front: Front, shop: httpx2.AsyncClient
) -> None:
    front.tokens["bank"] = (await front.operate.tokens.add(ADMIN, "bank", Role.PUBLISHER)).token
    await post(shop, body())
    for caller, status, is_shown in (
        ("viewer", 200, False),
        ("operator", 200, True),
        ("admin", 200, True),
        ("shop", 200, True),
        ("bank", 404, False),
    ):
        async with front.client(caller) as client:
            shown = await client.get(f"{PATH}/{ID.format(n=1)}")
            listed = await client.get(PATH)
        assert (shown.status_code, shown.json().get("payload") is not None) == (status, is_shown), caller
        assert [one["event_id"] for one in listed.json()["events"]] == ([ID.format(n=1)] if status == 200 else [])
        assert "euro" not in listed.text, "a list has no payloads"
    async with front.client("bank") as bank:
        assert (await bank.get(PATH, params={"source": "app:shop"})).status_code == 403


async def test_the_same_id_from_another_publisher_is_a_conflict(front: Front, shop: httpx2.AsyncClient) -> None:
    front.tokens["bank"] = (await front.operate.tokens.add(ADMIN, "bank", Role.PUBLISHER)).token
    await post(shop, body())
    async with front.client("bank") as bank:
        answer = await post(bank, body())
    assert (answer.status_code, answer.json()["code"]) == (409, "event.conflict")


async def test_events_are_found_by_each_filter_and_in_pages(front: Front, shop: httpx2.AsyncClient) -> None:
    await front.centre.store.write(topics.add, Topic(name="orders.paid"), front.clock.now())
    for n in range(1, 6):
        topic = "orders.paid" if n % 2 else "orders.created"
        await post(shop, body(n, topic=topic, resource=f"order/{n % 3}", correlation_id=f"c-{n}"))
        front.clock.advance(60)

    async def found(**query: Any) -> list[int]:
        answer = await shop.get(PATH, params=query)
        return [int(one["event_id"][-1]) for one in answer.json()["events"]]

    assert await found() == [5, 4, 3, 2, 1]
    assert await found(topic="orders.paid") == [5, 3, 1]
    assert await found(resource="order/1") == [4, 1]
    assert await found(resource="order/1", topic="orders.paid") == [1]
    assert await found(correlation="c-2") == [2]
    assert await found(source="app:shop", topic="orders.created") == [4, 2]
    first = (await shop.get(PATH, params={"limit": 2})).json()
    assert await found(limit=2, cursor=first["next_cursor"]) == [3, 2]
    at = first["events"][1]["created_at"]
    assert await found(to=at) == [3, 2, 1]
    assert await found(**{"from": at}) == [5, 4]


async def test_the_notifications_of_an_event_are_shown_in_pages(front: Front, shop: httpx2.AsyncClient) -> None:
    for number in range(5):
        await subscribe(front, f"s{number}", number)
    await post(shop, body())
    seen: list[str] = []
    cursor: str | None = None
    while cursor or not seen:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        shown = (await shop.get(f"{PATH}/{ID.format(n=1)}", params=query)).json()
        seen += [one["receiver"] for one in shown["notifications"]]
        cursor = shown["next_cursor"]
    assert sorted(seen) == ["s0", "s1", "s2", "s3", "s4"]
