"""`/api/v1/event-results` and the reports of outboxes."""

import json
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fieldpost.central.store.events import topics
from fieldpost.core.actor import Role
from fieldpost.core.events.topic import Topic
from fieldpost.core.times import to_text
from support.front import ADMIN, Front

RESULTS = "/api/v1/event-results"
ID = "0198c8a0-0000-7000-8000-{n:012d}"


@pytest.fixture
async def shop(front: Front) -> Any:
    """An application with its own token, and a topic to publish to."""
    front.tokens["shop"] = (await front.operate.tokens.add(ADMIN, "shop", Role.PUBLISHER, owner="viewer")).token
    await front.centre.store.write(topics.add, Topic(name="orders.created"), front.clock.now())
    async with front.client("shop") as client:
        yield client


def event(n: int, **more: Any) -> dict[str, Any]:
    return {"event_id": ID.format(n=n), "topic": "orders.created", "payload": {"n": n}, **more}


@pytest.mark.req("DEC-53", "DEC-54")
async def test_a_batch_returns_the_state_of_each_accepted_event_and_stores_the_report(
    front: Front, shop: httpx2.AsyncClient
) -> None:
    sent = {"events": [event(1), event(2, topic="nobody.registered")], "outbox": {"open_count": 7, "oldest_age_s": 90}}
    results = (await shop.post("/api/v1/events", json=sent)).json()["results"]
    assert [(one["verdict"], one["state"], one["code"]) for one in results] == [
        ("accepted", "sent", None),
        ("rejected", None, "topic.unknown"),
    ]
    async with front.client("viewer") as viewer:
        [outbox] = (await viewer.get("/api/v1/outboxes")).json()["outboxes"]
    now = front.clock.now()
    assert (outbox["source"], outbox["open_count"]) == ("app:shop", 7)
    if not front.centre.is_postgresql:
        assert outbox["reported_at"] == to_text(now)
        assert outbox["oldest_at"] == to_text(now - timedelta(seconds=90))
    assert (await shop.put("/api/v1/outbox", json={"open_count": 0})).status_code == 204
    async with front.client("viewer") as viewer:
        [outbox] = (await viewer.get("/api/v1/outboxes")).json()["outboxes"]
    assert (outbox["open_count"], outbox["oldest_at"]) == (0, None)


async def test_results_are_queried_by_time_and_by_id(shop: httpx2.AsyncClient) -> None:
    await shop.post("/api/v1/events", json={"events": [event(1)]})
    found = (await shop.post(RESULTS, json={"event_ids": [ID.format(n=1), ID.format(n=2)]})).json()
    assert [one["state"] for one in found["events"]] == ["sent", "unknown"]
    since = await shop.get(RESULTS, params={"ended_since": "2026-01-01T00:00:00Z"})
    assert (since.status_code, since.json()["notifications"], since.json()["next_cursor"]) == (200, [], None)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("GET", RESULTS, None, "ended_since"),
        ("GET", f"{RESULTS}?ended_since=yesterday", None, "ended_since"),
        ("GET", f"{RESULTS}?ended_since=2026-01-01T00:00:00Z&limit=1000", None, "limit"),
        ("POST", RESULTS, {"event_ids": []}, "event_ids"),
        ("POST", RESULTS, {"event_ids": ["x"]}, "event_ids[0]"),
        ("PUT", "/api/v1/outbox", {"open_count": -1}, "open_count"),
        ("PUT", "/api/v1/outbox", {"open_count": 1, "oldest_age_s": -1}, "oldest_age_s"),
    ],
)
async def test_bad_requests_name_the_field(
    shop: httpx2.AsyncClient, method: str, path: str, body: object, field: str
) -> None:
    content = None if body is None else json.dumps(body)
    headers = {"content-type": "application/json"} if content else {}
    answer = await shop.request(method, path, content=content, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_viewer_may_not_query_results(front: Front) -> None:
    async with front.client("viewer") as viewer:
        assert (await viewer.post(RESULTS, json={"event_ids": [ID.format(n=1)]})).status_code == 403
