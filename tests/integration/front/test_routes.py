"""Routes over the API and in the console: add, change, remove, and which lists would receive an event."""

from typing import Any

import httpx2
import pytest

from support.front import Front
from support.visitor import visiting

PATH = "/api/v1/routes"
TOPIC = {"attributes": ["service"]}
GIVEN = {"name": "down", "filter": [{"topic": "SERVICE_DOWN"}], "list_name": "ops"}


@pytest.fixture
async def admin(front: Front) -> Any:
    await front.centre.add_channel()
    async with front.client("admin") as client:
        await client.put("/api/v1/topics/SERVICE_DOWN", json=TOPIC)
        for name, targets in (("ops", ["ann@example.org"]), ("people", [])):
            added = await client.post("/api/v1/lists", json={"name": name, "type": "email", "targets": targets})
            assert added.status_code == 201, added.text
        yield client


@pytest.mark.req("DEC-57")
async def test_a_route_is_added_shown_changed_and_removed(front: Front, admin: httpx2.AsyncClient) -> None:
    added = await admin.post(PATH, json=GIVEN)
    assert added.status_code == 201, added.text
    route = added.json()["route"]
    assert (route["list_type"], route["without_template"], route["suppressed"]) == ("email", ["SERVICE_DOWN"], 0)
    own = f"{PATH}/{route['route_id']}"
    wanted = {**GIVEN, "list_name": "people", "to": "user.email", "cooldown_s": 600, "cooldown_by": "service"}
    changed = await admin.put(own, json={**wanted, "version": 1})
    assert (changed.json()["route"]["to"], changed.json()["route"]["version"]) == ("user.email", 2)
    assert [one["name"] for one in (await admin.get(PATH)).json()["routes"]] == ["down"]
    stale = await admin.put(own, json={**wanted, "version": 1})
    assert (stale.status_code, stale.json()["code"]) == (409, "route.changed")
    removed = await admin.post(f"{own}/remove", json={"version": 2})
    assert removed.json()["route"]["removed_at"] is not None
    assert (await admin.get(PATH)).json()["routes"] == []
    assert (await admin.post(PATH, json=GIVEN)).status_code == 201
    found = await front.centre.rows("select request_summary from audit where target = 'down' order by 1")
    assert [row[0] for row in found] == ["route.add", "route.add", "route.change", "route.remove"]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"name": ""}, "text.empty", "name"),
        ({"filter": []}, "filter.entries", "filter"),
        ({"list_name": "nowhere"}, "route.list", "list_name"),
        ({"list_name": "people"}, "route.no_targets", "list_name"),
        ({"to": "user..email"}, "route.to", "to"),
        ({"cooldown_by": "service"}, "route.cooldown", "cooldown_by"),
        ({"cooldown_s": 0}, "route.cooldown", "cooldown_s"),
        ({"cooldown_s": 1e9}, "route.cooldown", "cooldown_s"),
        ({"cooldown_s": 60, "cooldown_by": "a b"}, "attribute.name", "cooldown_by"),
    ],
)
async def test_an_invalid_route_is_refused_by_field(
    admin: httpx2.AsyncClient, change: dict[str, Any], code: str, field: str
) -> None:
    refused = await admin.post(PATH, json={**GIVEN, **change})
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, code, field)
    assert (await admin.get(PATH)).json()["routes"] == []


async def test_names_are_unique_and_only_administrators_change_routes(front: Front, admin: httpx2.AsyncClient) -> None:
    route = (await admin.post(PATH, json=GIVEN)).json()["route"]
    taken = await admin.post(PATH, json=GIVEN)
    assert (taken.status_code, taken.json()["code"]) == (409, "route.exists")
    async with front.client("operator") as operator:
        assert (await operator.get(PATH)).status_code == 200
        assert (await operator.post(PATH, json=GIVEN)).status_code == 403
        assert (await operator.post(f"{PATH}/{route['route_id']}/remove", json={"version": 1})).status_code == 403


@pytest.mark.req("DEC-57")
async def test_the_lists_that_would_receive_an_event(admin: httpx2.AsyncClient) -> None:
    await admin.post(PATH, json={**GIVEN, "filter": [{"topic": "SERVICE_DOWN", "attributes": {"service": "api"}}]})
    await admin.post(PATH, json={**GIVEN, "name": "owner", "list_name": "people", "to": "user.email"})
    payload = {"service": "API", "user": {"email": "carol@example.org"}}
    found = await admin.post(f"{PATH}/match", json={"topic": "SERVICE_DOWN", "payload": payload})
    shown = [(one["name"], one["list_name"], one["address"]) for one in found.json()["routes"]]
    assert shown == [("down", "ops", None), ("owner", "people", "carol@example.org")]
    other = await admin.post(f"{PATH}/match", json={"topic": "SERVICE_DOWN", "payload": {"service": "db"}})
    assert [(one["name"], one["address"]) for one in other.json()["routes"]] == [("owner", None)]
    assert (await admin.get("/api/v1/events")).json()["events"] == []


async def test_list_cannot_lose_its_last_target(admin: httpx2.AsyncClient) -> None:
    refused = await admin.patch("/api/v1/lists/ops", json={"version": 1, "targets": []})
    assert (refused.status_code, refused.json()["code"]) == (422, "list.empty")


async def test_the_pages_of_routes(front: Front, admin: httpx2.AsyncClient) -> None:
    async with visiting(front, "admin") as visitor:
        await visitor.look("/routes")
        assert "No routes yet" in visitor.text
        await visitor.look("/new/route")
        form = {"name": "down", "filter": "topic=SERVICE_DOWN, service=api", "list_name": "ops"}
        answer = await visitor.send("/routes", **{**form, "filter": "SERVICE_DOWN"})
        assert (answer.status_code, "Line 1 must be name=value" in visitor.text) == (422, True)
        answer = await visitor.send("/routes", **form, cooldown_s="soon")
        assert (answer.status_code, "must be a number of seconds" in visitor.text) == (422, True)
        await visitor.send("/routes", **form, cooldown_s="600", cooldown_by="service")
        assert "Route added" in visitor.text
        assert "These topics have no template" in visitor.text
        await visitor.look("/routes")
        assert "10 min by service" in visitor.text
        await visitor.look('/try-routes?topic=SERVICE_DOWN&payload={"service":"api"}')
        assert "targets of the list" in visitor.text
        await visitor.look("/try-routes?topic=SERVICE_DOWN&attributes=service%3Ddb")
        assert "No route matches this event" in visitor.text
        answer = await visitor.look("/try-routes?topic=a%20b")
        assert "must be 1 to 128 characters" in visitor.text
