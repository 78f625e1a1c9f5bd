"""Templates over the API and in the console: save, versions, preview, remove, and events that wait."""

from typing import Any

import httpx2
import pytest

from support.front import Front
from support.visitor import visiting

PATH = "/api/v1/templates"
DOWN = "SERVICE_DOWN"
GIVEN = {"subject": "{{ payload.service }} is down", "body": "Since {{ event.occurred_at }}"}
EVENT = {"event_id": "0198c8a0-0000-7000-8000-000000000001", "topic": DOWN, "payload": {"service": "db"}}


@pytest.fixture
async def admin(front: Front) -> Any:
    await front.centre.add_channel()
    async with front.client("admin") as client:
        await client.put(f"/api/v1/topics/{DOWN}", json={"example": {"service": "api"}})
        await client.post("/api/v1/lists", json={"name": "ops", "type": "email", "targets": ["ann@example.org"]})
        route = {"name": "down", "filter": [{"topic": DOWN}], "list_name": "ops"}
        assert (await client.post("/api/v1/routes", json=route)).status_code == 201
        yield client


@pytest.mark.req("DEC-58", "DEC-86")
async def test_a_template_is_saved_in_versions_previewed_and_removed(front: Front, admin: httpx2.AsyncClient) -> None:
    assert (await admin.post("/api/v1/events", json=EVENT)).status_code == 201
    overview = (await admin.get(PATH)).json()
    assert [(one["topic"], one["type"], one["count"]) for one in overview["waiting"]] == [(DOWN, "email", 1)]
    shown = await admin.post(f"{PATH}/preview", json={"topic": DOWN, **GIVEN, "event_id": EVENT["event_id"]})
    assert shown.json()["subject"] == "db is down"
    saved = await admin.put(f"{PATH}/{DOWN}", json={**GIVEN, "incident": "{{ payload.service }}"})
    assert saved.json()["template"]["incident"] == "{{ payload.service }}"
    assert (saved.json()["template"]["version"], saved.json()["waiting"]) == (1, 1)
    again = await admin.put(f"{PATH}/{DOWN}", json={**GIVEN, "body": "other", "version": 1})
    assert again.json()["template"]["version"] == 2
    versions = (await admin.get(f"{PATH}/{DOWN}")).json()["versions"]
    assert [(one["version"], one["is_current"]) for one in versions] == [(2, True), (1, False)]
    detail = (await admin.get(f"/api/v1/events/{EVENT['event_id']}")).json()
    assert (detail["withheld"], detail["counts"]) == ([], {"pending": 1})
    removed = await admin.post(f"{PATH}/{DOWN}/remove", json={"version": 2})
    assert [one["is_current"] for one in removed.json()["versions"]] == [False, False]
    assert (await admin.get(PATH)).json()["templates"] == []
    found = await front.centre.rows("select request_summary from audit where target = 'SERVICE_DOWN:' order by 1")
    assert [row[0] for row in found] == ["template.remove", "template.save", "template.save"]


async def test_a_preview_shows_how_many_segments_a_text_message_costs(front: Front, admin: httpx2.AsyncClient) -> None:
    tried = {"topic": DOWN, **GIVEN, "body": "x" * 200}
    for type_, costs in (("sms", ["sms: 2 segments of GSM-7 per number"]), ("", []), ("email", [])):
        shown = (await admin.post(f"{PATH}/preview", json={**tried, "type": type_})).json()
        assert (shown["subject"], shown["costs"]) == ("api is down", costs)
    await front.centre.add_channel("texts", type="sms", segments_max=1)
    (cost,) = (await admin.post(f"{PATH}/preview", json=tried)).json()["costs"]
    assert cost.startswith("sms: 1 segment of GSM-7 per number; truncated, because the whole text takes 2")
    async with visiting(front, "admin") as visitor:
        await visitor.look(f"/templates/{DOWN}")
        await visitor.send(f"/templates/{DOWN}", type="sms", do="preview", **{**GIVEN, "body": "°"})
        assert "Cost for sms: 1 segment of UCS-2 per number, because it has characters outside" in visitor.text


@pytest.mark.bad_input(40)
async def test_an_invalid_template_is_refused_by_field(front: Front, admin: httpx2.AsyncClient) -> None:
    for change, code, field in (
        ({"subject": "{{ payload.servce }}"}, "template.unknown_variable", "subject"),
        ({"body": "{{ service }}"}, "template.unknown_variable", "body"),
        ({"subject": " "}, "template.empty", "subject"),
        ({"body": "{{ unclosed"}, "template.invalid", "body"),
        ({"body": "a" * 70_000}, "text.too_long", "body"),
        ({"incident": "{{ payload.servce }}"}, "template.unknown_variable", "incident"),
        ({"is_cleared": "a" * 5_000}, "text.too_long", "is_cleared"),
        ({"type": "pigeon"}, "type.unknown", "type"),
    ):
        refused = await admin.put(f"{PATH}/{DOWN}", json={**GIVEN, **change})
        assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, code, field)
    assert (await admin.get(f"{PATH}/{DOWN}")).status_code == 404
    stale = await admin.put(f"{PATH}/{DOWN}", json={**GIVEN, "version": 3})
    assert stale.status_code == 409
    async with front.client("operator") as operator:
        assert (await operator.put(f"{PATH}/{DOWN}", json=GIVEN)).status_code == 403


async def test_the_pages_of_templates(front: Front, admin: httpx2.AsyncClient) -> None:
    await admin.post("/api/v1/events", json=EVENT)
    async with visiting(front, "admin") as visitor:
        await visitor.look("/templates")
        assert "Events wait for a template" in visitor.text
        await visitor.look(f"/templates/{DOWN}")
        assert "1 event waits for this template" in visitor.text
        alarm = {"severity": "critical", "incident": "of {{ payload.service }}", "is_cleared": "true"}
        tried = {**GIVEN, **alarm, "event_id": EVENT["event_id"]}
        await visitor.send(f"/templates/{DOWN}", do="preview", type="", **tried)
        assert "db is down" in visitor.text
        assert "Severity: critical Incident: of db (over)" in visitor.text
        answer = await visitor.send(f"/templates/{DOWN}", type="", version="", subject="{{ payload.x }}", body="")
        assert (answer.status_code, "Unknown variable 'payload.x'" in visitor.text) == (422, True)
        await visitor.send(f"/templates/{DOWN}", type="", version="", **GIVEN)
        assert "1 waiting event gets its notifications now" in visitor.text
        await visitor.send(f"/templates/{DOWN}", type="", version="1", subject="new", body="")
        await visitor.look(f"/templates/{DOWN}?version=1")
        assert "payload.service" in visitor.text
        await visitor.look(f"/templates/{DOWN}?confirm=remove")
        await visitor.send(f"/templates/{DOWN}/remove", type="", version="2")
        assert "No templates yet" in visitor.text
