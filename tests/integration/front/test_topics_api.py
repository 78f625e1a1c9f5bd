"""`/api/v1/topics`: registering topics, their schema and example, and archiving."""

import json
from typing import Any

import httpx2
import pytest

from support.front import Front

PATH = "/api/v1/topics"
SCHEMA = {"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}}}


@pytest.fixture
async def admin(front: Front) -> Any:
    async with front.client("admin") as client:
        yield client


def event(n: int, topic: str = "orders.created", **payload: Any) -> dict[str, Any]:
    return {"event_id": f"0198c8a0-0000-7000-8000-00000000000{n}", "topic": topic, "payload": payload}


async def test_a_topic_is_added_shown_changed_and_archived(front: Front, admin: httpx2.AsyncClient) -> None:
    given = {
        "description": "An order was created",
        "attributes": ["region"],
        "schema": SCHEMA,
        "example": {"order": 17},
        "owners": ["billing", "*"],
    }
    added = await admin.put(f"{PATH}/orders.created", json=given)
    assert added.status_code == 200
    extra = {"archived_at": None, "is_kanaal": False, "documentation_url": None, "version": 1}
    expected = {"name": "orders.created", **given, **extra}
    assert added.json() == expected
    assert (await admin.get(f"{PATH}/orders.created")).json() == expected
    assert (await admin.get(PATH)).json() == {"topics": [expected]}
    changed = await admin.put(f"{PATH}/orders.created", json={"description": "other", "version": 1})
    assert (changed.json()["description"], changed.json()["schema"], changed.json()["version"]) == ("other", None, 2)
    archived = await admin.post(f"{PATH}/orders.created/archive", json={"version": 2})
    assert archived.json()["archived_at"] is not None
    refused = await admin.post("/api/v1/events", json=event(1))
    assert (refused.status_code, refused.json()["code"]) == (422, "topic.archived")
    reopened = await admin.put(f"{PATH}/orders.created", json={"version": 3})
    assert reopened.json()["archived_at"] is None
    assert (await admin.post("/api/v1/events", json=event(1))).status_code == 201
    actions = await front.centre.rows("select request_summary from audit where target = 'orders.created'")
    assert sorted(row[0] for row in actions) == ["topic.archive", *["topic.save"] * 3]


async def test_a_change_from_an_outdated_version_is_a_conflict(front: Front, admin: httpx2.AsyncClient) -> None:
    await admin.put(f"{PATH}/orders", json={})
    for body, code in (({}, "topic.exists"), ({"version": 2}, "topic.changed")):
        refused = await admin.put(f"{PATH}/orders", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, code)
    assert (await admin.post(f"{PATH}/orders/archive", json={"version": 5})).status_code == 409
    assert (await admin.put(f"{PATH}/unknown", json={"version": 1})).status_code == 404
    assert (await admin.post(f"{PATH}/unknown/archive", json={"version": 1})).status_code == 404
    assert (await admin.get(f"{PATH}/unknown")).status_code == 404


@pytest.mark.parametrize(
    ("name", "body", "code", "field"),
    [
        ("two words", {}, "topic.name", "name"),
        ("x" * 129, {}, "topic.name", "name"),
        ("t", {"schema": SCHEMA, "example": {"order": "17"}}, "topic.example", "example"),
        ("t", {"schema": SCHEMA, "example": {}}, "topic.example", "example"),
        ("t", {"schema": {"$ref": "https://example.org/s.json"}}, "topic.schema", "schema"),
        ("t", {"schema": [1]}, "topic.schema", "schema"),
        ("t", {"example": [1]}, "topic.example", "example"),
        ("t", {"example": {"a": "x" * 70_000}}, "topic.example", "example"),
        ("t", {"attributes": ["a", "a"]}, "topic.attributes", "attributes"),
        ("t", {"attributes": ["a b"]}, "attribute.name", "attributes"),
        ("t", {"owners": [""]}, "text.empty", "owners"),
        ("t", {"description": "x" * 5000}, "text.too_long", "description"),
        ("t", {"colour": "red"}, "body.invalid", "colour"),
        ("t", {"version": -1}, "body.invalid", "version"),
        ("t", {"version": 2**63}, "body.invalid", "version"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_an_invalid_topic_is_refused_naming_field_and_rule_and_is_not_saved(
    front: Front, admin: httpx2.AsyncClient, name: str, body: dict[str, Any], code: str, field: str
) -> None:
    refused = await admin.put(f"{PATH}/{name}", json=body)
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, code, field)
    assert (await admin.get(PATH)).json() == {"topics": []}


async def test_publishing_does_not_validate_against_the_schema(front: Front, admin: httpx2.AsyncClient) -> None:
    await admin.put(f"{PATH}/orders.created", json={"schema": SCHEMA, "example": {"order": 1}})
    assert (await admin.post("/api/v1/events", json=event(1, order="text"))).status_code == 201


async def test_schema_and_example_are_kept_as_they_were_written(front: Front, admin: httpx2.AsyncClient) -> None:
    schema = '{ "pattern" : "^(a+)+$",  "maximum": 1.0e2 }'
    content = json.dumps({"example": {"a": 1}})[:-1] + f', "schema": {schema}' + "}"
    headers = {"content-type": "application/json"}
    saved = await admin.put(f"{PATH}/t", content=content, headers=headers)
    assert f'"schema":{schema}' in saved.text
    assert f'"schema":{schema}' in (await admin.get(f"{PATH}/t")).text
