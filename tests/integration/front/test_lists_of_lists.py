"""Lists of lists over the API, in files and in the console: one level deep, 1 to 50 lists, no path of their own."""

from typing import Any

import httpx2
import pytest

from fieldpost.central.store.search import terms
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.wholes import part_id
from support.front import Front
from support.visitor import visiting

PATH = "/api/v1/lists"
CSV = {"Content-Type": "text/csv"}


@pytest.fixture
async def admin(front: Front) -> Any:
    await front.centre.add_channel()
    async with front.client("admin") as client:
        for name in ("mail", "duty"):
            await client.post(PATH, json={"name": name, "targets": [f"{name}@example.org"]})
        added = await client.post(PATH, json={"name": "alarm", "type": "lists", "targets": ["mail", "duty"]})
        assert added.status_code == 201, added.text
        yield client


BROKEN: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"targets": ["mail", "new"]}, "list.nested", "targets[1]"),
    ({"targets": ["alarm"]}, "list.nested", "targets[0]"),
    ({"targets": ["mail", "mail"]}, "list.twice", "targets[1]"),
    ({"targets": ["mail", *(f"l{number}" for number in range(50))]}, "list.too_many", "targets[50]"),
    ({"targets": []}, "list.empty", "targets"),
    ({"targets": ["nowhere"]}, "list.unknown", "targets[0]"),
    ({"targets": ["a\nb"]}, "text.control", "targets[0]"),
    ({"channel": "mail"}, "list.no_path", "channel"),
    ({"retry": "fixed:5s:3"}, "list.no_path", "retry"),
    ({"park_uncertain": True}, "list.no_path", "park_uncertain"),
    ({"severity": "error"}, "list.no_path", "severity"),
)


@pytest.mark.req("CHN-11")
async def test_a_list_of_lists_that_breaks_a_rule_is_refused_when_added_changed_and_imported(
    front: Front, admin: httpx2.AsyncClient
) -> None:
    for given, code, field in BROKEN:
        body = {"name": "new", "type": "lists", "targets": ["mail"], **given}
        answer = await admin.post(PATH, json=body)
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
        own = ["alarm" if one == "new" else one for one in body["targets"]]
        answer = await admin.patch(f"{PATH}/alarm", json={"version": 1, **given, "targets": own})
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
        answer = await admin.post("/api/v1/import/lists", json={"lists": [body]})
        assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert [one["name"] for one in (await admin.get(PATH)).json()["lists"]] == ["alarm", "duty", "mail"]
    assert (await admin.get(f"{PATH}/alarm")).json()["targets"] == ["duty", "mail"]


@pytest.mark.req("CHN-11")
async def test_a_list_that_another_one_names_cannot_become_a_list_of_lists(
    front: Front, admin: httpx2.AsyncClient
) -> None:
    assert (await admin.delete(f"{PATH}/duty")).status_code == 204
    answer = await admin.post(PATH, json={"name": "duty", "type": "lists", "targets": ["mail"]})
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "list.nested", "type")
    file = {"lists": [{"name": "duty", "type": "lists", "targets": ["mail"]}]}
    answer = await admin.post("/api/v1/import/lists", json=file)
    assert (answer.status_code, answer.json()["code"]) == (422, "list.nested")


@pytest.mark.req("CHN-11")
async def test_lists_of_lists_are_exported_and_imported_with_the_lists_that_they_name(
    front: Front, admin: httpx2.AsyncClient
) -> None:
    found = await admin.get("/api/v1/export/lists?format=csv")
    for name in ("alarm", "mail", "duty"):
        await admin.delete(f"{PATH}/{name}")
    answer = await admin.post("/api/v1/import/lists", content=found.text, headers=CSV)
    assert answer.status_code == 200, answer.text
    assert (await admin.get(f"{PATH}/alarm")).json()["targets"] == ["duty", "mail"]
    assert (await admin.get(f"{PATH}/alarm")).json()["type"] == "lists"
    again = await admin.post("/api/v1/import/lists", content=found.text, headers=CSV)
    assert (again.json()["changes"], again.json()["unchanged"]) == ([], 3)


@pytest.mark.req("CHN-12")
async def test_a_whole_is_shown_retried_and_asked_for_by_its_site(front: Front, admin: httpx2.AsyncClient) -> None:
    front.centre.adapter.answer("duty", PermanentFailure("no such number"))
    whole = await front.centre.send("alarm", site="plant-7")
    await front.centre.deliver()
    async with front.client("operator") as client:
        shown = (await client.get(f"/api/v1/notifications/{whole}")).json()
        assert (shown["status"], shown["type"], shown["list_name"]) == ("parked", "lists", "alarm")
        assert shown["last_error"] == "list 'duty': duty@example.org: no such number"
        assert [(one["list_name"], one["status"]) for one in shown["parts"]] == [
            ("duty", "parked"),
            ("mail", "delivered"),
        ]
        part = (await client.get(f"/api/v1/notifications/{part_id(whole, 'duty')}")).json()
        assert (part["whole_id"], part["whole_list"], part["parts"]) == (whole, "alarm", [])
        stale = await client.post(f"/api/v1/notifications/{whole}/retry", json={"version": shown["version"] + 1})
        assert (stale.status_code, stale.json()["code"]) == (409, "notification.changed")
        retried = await client.post(f"/api/v1/notifications/{whole}/retry", json={"version": shown["version"]})
        assert (retried.status_code, retried.json()["status"]) == (200, "pending")
    async with front.client("site") as site:
        status = (await site.get(f"/link/v1/status/{whole}")).json()
        assert status["status"] == "pending"
        await front.centre.deliver()
        assert (await site.get(f"/link/v1/status/{whole}")).json()["status"] == "delivered"


@pytest.mark.req("CHN-12")
async def test_parts_are_found_by_the_name_of_their_whole_before_and_after_they_are_indexed(
    front: Front, admin: httpx2.AsyncClient
) -> None:
    front.centre.adapter.answer("duty", PermanentFailure("no such number"))
    whole = await front.centre.send("alarm")
    await front.centre.send("mail")
    await front.centre.deliver()
    parts = {part_id(whole, name) for name in ("duty", "mail")}
    for sweep in (1, 2):
        for query in ("list=alarm", "list=alarm&status=parked&status=delivered", "list=alarm&status=parked"):
            shown = (await admin.get(f"/api/v1/notifications?{query}")).json()["notifications"]
            found = {one["notification_id"] for one in shown}
            assert found == (parts if "delivered" in query or "status" not in query else {part_id(whole, "duty")})
        async with visiting(front, "viewer") as visitor:
            await visitor.look("/notifications?list=alarm")
            assert visitor.page.text.count('class="whole"') == 1
            assert all(f'id="r-{part}"' in visitor.page.text for part in parts)
        front.clock.advance(1)
        await front.centre.store.write(terms.index, 1000, sweep)
    assert await front.centre.rows("select 1 from search_terms where term = 'l:alarm'")


async def test_the_console_shows_parts_under_their_whole_and_a_page_for_the_whole(
    front: Front, admin: httpx2.AsyncClient
) -> None:
    front.centre.adapter.answer("duty", PermanentFailure("no such number"))
    whole = await front.centre.send("alarm", subject="Pump 3 is hot")
    await front.centre.send("mail", subject="Between them")
    await front.centre.deliver()
    async with visiting(front, "operator") as visitor:
        await visitor.look("/notifications")
        page = visitor.page.text
        places = [page.index(f'id="{mark}"') for mark in (f"w-{whole}", *sorted_rows(page, whole))]
        assert places == sorted(places)
        assert page.count('class="whole"') == 1
        text = await visitor.look(f"/notifications/{whole}")
        assert "1 of 2 parts is delivered. List 'duty': It was parked at" in text
        assert f'href="/notifications/{part_id(whole, "duty")}?back=' in visitor.page.text
        await visitor.look(f"/notifications/{part_id(whole, 'duty')}")
        assert f'<a href="/notifications/{whole}">' in visitor.page.text
    async with visiting(front, "admin") as visitor:
        text = await visitor.look("/lists/alarm")
        assert "a list of 2 lists" in text
        assert "no channel" not in await visitor.look("/lists")


def sorted_rows(page: str, whole: str) -> list[str]:
    """The ids of the rows of the parts, in the order of the page; nothing is between them."""
    rows = [f"r-{part_id(whole, name)}" for name in ("mail", "duty")]
    rows.sort(key=lambda row: page.index(f'id="{row}"'))
    between = page[page.index(f'id="{rows[0]}"') : page.index(f'id="{rows[1]}"')]
    assert between.count("</tr>") == 1
    return rows


@pytest.mark.req("CHN-11")
async def test_a_route_to_a_list_of_lists_with_an_address_is_refused(front: Front, admin: httpx2.AsyncClient) -> None:
    await admin.put("/api/v1/topics/SERVICE_DOWN", json={"attributes": []})
    route = {"name": "down", "filter": [{"topic": "SERVICE_DOWN"}], "list_name": "alarm"}
    answer = await admin.post("/api/v1/routes", json={**route, "to": "user.email"})
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "route.lists", "to")
    answer = await admin.post("/api/v1/routes", json=route)
    assert answer.status_code == 201
    assert answer.json()["route"]["without_template"] == ["SERVICE_DOWN"]
