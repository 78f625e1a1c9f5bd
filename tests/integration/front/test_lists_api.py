"""`/api/v1/lists`, changed, imported and exported: one validator, compare-and-set, all or nothing, audited."""

import json
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, text

from fieldpost.core.delivery.outcome import Held
from fieldpost.core.notification import Status
from support.centre import SITE
from support.front import ADMIN, Front
from support.visitor import visiting

CSV = {"Content-Type": "text/csv"}
OPS = {"name": "ops", "targets": ["a@example.org", "b@example.org"]}


async def add(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/v1/lists", json=OPS | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.bad_input(22)
async def test_mailbox_in_several_spellings_gets_one_copy(front: Front) -> None:
    async with front.client("admin") as client:
        added = await add(client, targets=["Ann@Example.org", "ann@example.org", "ANN@EXAMPLE.ORG", "bob@example.org"])
        assert added["targets"] == ["Ann@example.org", "bob@example.org"]
        body = {"version": 1, "targets": ["bob@example.org", "BOB@example.org"]}
        assert (await client.patch("/api/v1/lists/ops", json=body)).json()["targets"] == ["bob@example.org"]
        found = await client.post(
            "/api/v1/import/lists", content="list,target\nops,c@x.example\nops,C@X.example\n", headers=CSV
        )
        assert found.json()["changes"][0]["added"] == ["c@x.example"]


@pytest.mark.req("ADP-04")
@pytest.mark.bad_input(23)
async def test_list_of_five_thousand_is_accepted_and_changed(front: Front) -> None:
    many = [f"person{number}@example.org" for number in range(5000)]
    async with front.client("admin") as client:
        assert len((await add(client, targets=many))["targets"]) == 5000
        answer = await client.patch("/api/v1/lists/ops", json={"version": 1, "targets": [*many[1:], "new@example.org"]})
        assert answer.status_code == 200
        found = (await client.get("/api/v1/lists/ops")).json()
    assert sorted(found["targets"]) == sorted([*many[1:], "new@example.org"])


@pytest.mark.bad_input(23)
async def test_list_of_too_many_targets_is_rejected_on_save(front: Front) -> None:
    targets = ["a@example.org"] * 10_001
    async with front.client("admin") as client:
        assert (await client.post("/api/v1/lists", json=OPS | {"targets": targets})).json()["field"] == "targets"
        await add(client)
        answer = await client.patch("/api/v1/lists/ops", json={"version": 1, "targets": targets})
        assert (answer.status_code, answer.json()["field"]) == (422, "targets")
        assert (await client.get("/api/v1/lists/ops")).json()["targets"] == OPS["targets"]


async def test_change_keeps_fields_that_it_does_not_name(front: Front) -> None:
    given = {"park_uncertain": True, "retry": "fixed:5s:3", "allowed_sites": ["plant-7", "plant-1"]}
    async with front.client("admin") as client:
        before = await add(client, **given)
        assert before["allowed_sites"] == ["plant-1", "plant-7"]
        body = {"version": 1, "targets": ["c@example.org"]}
        after = (await client.patch("/api/v1/lists/ops", json=body)).json()
        assert after == before | {"targets": ["c@example.org"], "target_count": 1, "version": 2}
        assert (await client.get("/api/v1/lists/ops")).json() == after
        body = {"version": 2, "retry": None, "allowed_sites": None, "park_uncertain": False}
        after = (await client.patch("/api/v1/lists/ops", json=body)).json()
        assert after == before | {"targets": ["c@example.org"], "target_count": 1} | body | {"version": 3}


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"version": 2}, 409, "list.changed"),
        ({"version": 1, "type": "email"}, 422, "body.invalid"),
        ({"version": 1, "name": "other"}, 422, "body.invalid"),
        ({"version": 1, "channel": "missing"}, 422, "channel.unknown"),
        ({"version": 1, "retry": "now"}, 422, "retry.invalid"),
        ({"version": 1, "allowed_sites": []}, 422, "list.no_sites"),
        ({"version": 1, "allowed_sites": ["a\nb"]}, 422, "text.control"),
        ({"version": 1, "targets": ["nonsense"]}, 422, "address.invalid"),
    ],
)
async def test_a_change_that_breaks_a_rule_changes_nothing(
    front: Front, change: dict[str, Any], status: int, code: str
) -> None:
    async with front.client("admin") as client:
        before = await add(client)
        answer = await client.patch("/api/v1/lists/ops", json=change)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert (await client.get("/api/v1/lists/ops")).json() == before
        assert (await client.patch("/api/v1/lists/nobody", json={"version": 1})).status_code == 404


@pytest.mark.threat(5)
async def test_notification_of_a_site_that_the_list_does_not_allow_parks_naming_the_rule(front: Front) -> None:
    centre = front.centre
    await centre.add_channel()
    async with front.client("admin") as client:
        await add(client, allowed_sites=["plant-1"])
    allowed, refused = await centre.send("ops", site="plant-1"), await centre.send("ops", site=SITE)
    await centre.deliver()
    assert (await centre.get(allowed)).status is Status.DELIVERED
    found = await centre.get(refused)
    assert found.status is Status.PARKED
    assert f"site {SITE!r} may not send to list 'ops'; allowed sites: 'plant-1'" in (found.last_error or "")
    assert centre.adapter.sent() == [allowed]


@pytest.mark.bad_input(24)
async def test_a_list_removed_between_ingest_and_delivery_parks_naming_it(front: Front) -> None:
    await front.centre.add_channel()
    async with front.client("admin") as client:
        await add(client)
        sent = await front.centre.send("ops")
        assert (await client.delete("/api/v1/lists/ops")).status_code == 204
    await front.centre.deliver()
    found = await front.centre.get(sent)
    assert (found.status, found.last_error) == (Status.PARKED, "there is no list named 'ops'")


async def test_import_applies_exactly_its_preview(front: Front) -> None:
    file = (
        "list,target,retry\nops,b@example.org,fixed:9s:2\nops,c@example.org,fixed:9s:2\n"
        "night,d@example.org,\nsame,e@example.org,\n"
    )
    async with front.client("admin") as client:
        await add(client)
        await add(client, name="same", targets=["e@example.org"])
        await add(client, name="other", targets=["f@example.org"])
        before = (await client.get("/api/v1/lists")).json()
        shown = (await client.post("/api/v1/import/lists?dry_run=true", content=file, headers=CSV)).json()
        assert (await client.get("/api/v1/lists")).json() == before
        done = (await client.post("/api/v1/import/lists", content=file, headers=CSV)).json()
        after = {one["name"]: one for one in (await client.get("/api/v1/lists")).json()["lists"]}
        again = (await client.post("/api/v1/import/lists", content=file, headers=CSV)).json()
    assert shown["changes"] == done["changes"]
    assert (shown["dry_run"], done["dry_run"], done["unchanged"]) == (True, False, 1)
    assert {change["list"]: change for change in done["changes"]} == {
        "ops": {
            "list": "ops",
            "is_new": False,
            "added": ["c@example.org"],
            "removed": ["a@example.org"],
            "properties": ["retry"],
        },
        "night": {"list": "night", "is_new": True, "added": ["d@example.org"], "removed": [], "properties": []},
    }
    assert {name: one["targets"] for name, one in after.items()} == {
        "ops": ["b@example.org", "c@example.org"],
        "night": ["d@example.org"],
        "same": ["e@example.org"],
        "other": ["f@example.org"],
    }
    assert after["ops"]["version"] == 2
    assert after["same"]["version"] == 1
    assert (again["changes"], again["unchanged"]) == ([], 3)
    acts = await front.centre.store.read(acts_by_import)
    assert acts == {("list.change", "ops"), ("list.add", "night")}


@pytest.mark.parametrize("dry_run", ["true", "false"])
@pytest.mark.parametrize(
    ("file", "status", "field"),
    [
        ("list,target\nnew,x@example.org\nops,nonsense\n", 422, "line 3.target"),
        ("list,target,channel\nnew,x@example.org,\nops,a@example.org,missing\n", 422, "line 3.channel"),
        ("list,target,type\nnew,x@example.org,\nbad,a@example.org,pigeon\n", 422, "line 3.type"),
        ("list,target\nnew,x@example.org\n" + "x" * 129 + ",a@example.org\n", 422, "line 3.list_name"),
        ("list,target\n", 422, None),
        ("list,target\nops,\xff\xfe", 422, "line 2"),
    ],
)
async def test_file_with_one_error_is_not_imported(
    front: Front, file: str, status: int, field: str | None, dry_run: str
) -> None:
    async with front.client("admin") as client:
        await add(client)
        before = (await client.get("/api/v1/lists")).json()
        path = f"/api/v1/import/lists?dry_run={dry_run}"
        answer = await client.post(path, content=file.encode("latin-1"), headers=CSV)
        assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
        assert (await client.get("/api/v1/lists")).json() == before


async def test_type_of_a_list_is_fixed_for_an_import_too(front: Front) -> None:
    await front.centre.add_list("ops", "https://hook.example", type="pager")
    async with front.client("admin") as client:
        answer = await client.post("/api/v1/import/lists", content="list,target\nops,a@x.example\n", headers=CSV)
    assert (answer.status_code, answer.json()["code"]) == (409, "list.other_type")
    assert answer.json()["field"] == "line 2"


async def test_a_json_file_with_an_error_of_syntax_names_the_line(front: Front) -> None:
    text = '{"lists": [\n  {"name": "ops",\n   "targets": ["a@example.org" "b@example.org"]}\n]}\n'
    headers = {"Content-Type": "application/json"}
    async with front.client("admin") as client:
        answer = await client.post("/api/v1/import/lists", content=text, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (400, "line 3"), answer.text


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded"])
async def test_an_import_of_another_kind_of_content_is_refused(front: Front, kind: str) -> None:
    async with front.client("admin") as client:
        answer = await client.post("/api/v1/import/lists", content=b"x", headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "http.content_type")
        answer = await client.post("/api/v1/import/lists?dry_run=perhaps", content=b"x", headers=CSV)
        assert answer.json()["field"] == "dry_run"


@pytest.mark.parametrize("kind", ["csv", "json"])
async def test_exported_lists_can_be_imported_elsewhere(front: Front, kind: str) -> None:
    async with front.client("admin") as client:
        await add(client, name='=cmd|"calc"', targets=["+x@example.org", "a@example.org"], retry="fixed:5s:3")
        await add(client, name="+night", allowed_sites=["a|b", "-c"], park_uncertain=True)
        before = (await client.get("/api/v1/lists")).json()
        exported = await client.get(f"/api/v1/export/lists?format={kind}")
        assert exported.headers["content-type"].startswith({"csv": "text/csv", "json": "application/json"}[kind])
        for one in before["lists"]:
            await front.operate.lists.remove(ADMIN, one["name"])
        headers = {"Content-Type": exported.headers["content-type"]}
        answer = await client.post("/api/v1/import/lists", content=exported.content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert (await client.get("/api/v1/lists")).json() == before
        assert (await client.get("/api/v1/export/lists?format=xml")).json()["field"] == "format"


@pytest.mark.threat(8)
async def test_only_administrators_export_lists_and_the_export_is_audited(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client, name="night")
    for role, status in (("viewer", 403), ("operator", 403), ("admin", 200)):
        async with front.client(role) as client:
            assert (await client.get("/api/v1/export/lists")).status_code == status
    entries = await front.centre.rows("select actor, target from audit where request_summary = 'list.export'")
    assert entries == [(ADMIN.name, "all")]


async def test_a_list_moved_to_another_channel_leaves_the_breaker_of_the_old_one(front: Front) -> None:
    centre = front.centre
    await centre.add_channel("mail")
    await centre.add_channel("relay", default=False)
    async with front.client("admin") as client:
        await add(client)
        centre.adapter.always["ops"] = Held("no connection", phase="connect")
        sent = await centre.send_many(8, "ops")
        for _ in range(3):
            await centre.deliver()
        assert {(await centre.get(one)).held_by for one in sent} == {"channel:mail"}
        centre.adapter.always.clear()
        assert (await client.patch("/api/v1/lists/ops", json={"version": 1, "channel": "relay"})).status_code == 200
    await centre.deliver()
    assert {(await centre.get(one)).status for one in sent} == {Status.DELIVERED}


def acts_by_import(conn: Connection) -> set[tuple[str, str]]:
    found = conn.execute(text("select request_summary, target, extra from audit where kind = 'operator_action'"))
    acts = [(row.request_summary, row.target, row.extra) for row in found]
    loaded = [(act, target, json.loads(extra) if isinstance(extra, str) else extra) for act, target, extra in acts]
    return {(act, target) for act, target, extra in loaded if extra and extra.get("by") == "import"}


@pytest.mark.threat(8)
async def test_viewers_see_the_number_of_targets_and_operators_the_addresses(front: Front) -> None:
    await front.centre.add_channel()
    await front.centre.add_list("ops", "anna@plant.example", "bert@plant.example")
    for role, targets in (
        ("viewer", None),
        ("operator", ["anna@plant.example", "bert@plant.example"]),
        ("admin", ["anna@plant.example", "bert@plant.example"]),
    ):
        async with front.client(role) as client:
            [listed] = (await client.get("/api/v1/lists")).json()["lists"]
            shown = (await client.get("/api/v1/lists/ops")).json()
            assert listed == shown
            assert (shown["targets"], shown["target_count"]) == (targets, 2)
            assert (await client.get("/api/v1/export/lists")).status_code == (200 if role == "admin" else 403)
        async with visiting(front, role) as visitor:
            for path in ("/lists", "/lists/ops"):
                text = await visitor.look(path)
                assert "plant.example" not in text or (role != "viewer" and path == "/lists/ops")
            assert "2 targets" in text
            assert ("anna@plant.example" in visitor.page.text) is (role != "viewer")
    exports = await front.centre.rows("select actor from audit where request_summary = 'list.export'")
    assert exports == [("admin",)]
