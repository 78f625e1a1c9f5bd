"""`/api/v1/lists`, `/channels`, `/sites`: what an administrator sets up, checked and audited."""

from typing import Any

import pytest
from sqlalchemy import Connection, text

from fieldpost.core.actor import Role
from fieldpost.core.sites.node import SiteNode
from support.front import ADMIN, Front

MAIL = {"host": "127.0.0.1", "port": 2525, "tls": "none", "from_address": "alerts@plant.example"}


async def test_list_can_be_added_shown_and_removed(front: Front) -> None:
    async with front.client("admin") as client:
        new = {"name": "ops", "targets": ["b@example.org", "a@example.org"]}
        added = await client.post("/api/v1/lists", json=new)
        assert added.status_code == 201
        found = (await client.get("/api/v1/lists/ops")).json()
        assert (found["type"], sorted(found["targets"])) == ("email", ["a@example.org", "b@example.org"])
        assert [one["name"] for one in (await client.get("/api/v1/lists")).json()["lists"]] == ["ops"]
        assert (await client.delete("/api/v1/lists/ops")).status_code == 204
        assert (await client.get("/api/v1/lists/ops")).json()["code"] == "list.unknown"
        assert (await client.delete("/api/v1/lists/ops")).status_code == 404


async def test_the_same_address_given_twice_gets_one_copy(front: Front) -> None:
    async with front.client("admin") as client:
        given = ["a@example.org", "b@example.org", "a@EXAMPLE.org"]
        added = await client.post("/api/v1/lists", json={"name": "ops", "targets": given})
    assert added.json()["targets"] == ["a@example.org", "b@example.org"]


@pytest.mark.parametrize("name", ["a/b", "Ünïcode", "with space", "...", "100%", "a?b#c", "<b>"])
async def test_list_with_any_valid_name_can_be_reached(front: Front, name: str) -> None:
    from urllib.parse import quote

    async with front.client("admin") as client:
        assert (await client.post("/api/v1/lists", json={"name": name, "targets": ["a@b.example"]})).status_code == 201
        path = f"/api/v1/lists/{quote(name, safe='')}"
        assert (await client.get(path)).json()["name"] == name
        assert (await client.delete(path)).status_code == 204


@pytest.mark.parametrize("noun", ["lists", "channels"])
@pytest.mark.parametrize("name", ["%00", "%FF", "nothing", "x" * 5000])
async def test_invalid_name_is_not_found(front: Front, noun: str, name: str) -> None:
    async with front.client("admin") as client:
        for method in ("GET", "DELETE"):
            answer = await client.request(method, f"/api/v1/{noun}/{name}")
            assert (answer.status_code, answer.json()["code"]) == (404, f"{noun[:-1]}.unknown")


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"name": ""}, 422, "list_name"),
        ({"name": " ops"}, 422, "list_name"),
        ({"name": "a\nb"}, 422, "list_name"),
        ({"name": "x" * 129}, 422, "list_name"),
        ({"name": 7}, 422, "name"),
        ({"type": "pigeon"}, 422, "type"),
        ({"targets": ["a@example.org", "nonsense"]}, 422, "targets[1]"),
        ({"targets": ["a@example.org", "x@y\r\nBcc: z@y.example"]}, 422, "targets[1]"),
        ({"targets": "a@example.org"}, 422, "targets"),
        ({"channel": "missing"}, 422, "channel"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
async def test_a_list_that_breaks_a_rule_is_refused_by_its_field(
    front: Front, change: dict[str, Any], status: int, field: str
) -> None:
    async with front.client("admin") as client:
        answer = await client.post("/api/v1/lists", json={"name": "ops", "targets": ["a@example.org"]} | change)
        assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
        assert (await client.get("/api/v1/lists")).json() == {"lists": []}


@pytest.mark.parametrize("noun", ["lists", "channels", "sites"])
async def test_a_name_that_is_taken_is_a_conflict(front: Front, noun: str) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "lists": {"name": "x", "targets": ["a@example.org"]},
        "channels": {"name": "x", "type": "email", "settings": MAIL},
        "sites": {"name": "x"},
    }
    async with front.client("admin") as client:
        answers = [await client.post(f"/api/v1/{noun}", json=bodies[noun]) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 409]
    assert answers[1].json()["code"] == f"{noun[:-1]}.exists"


async def test_a_channel_can_be_added_changed_and_removed(front: Front) -> None:
    async with front.client("admin") as client:
        new = {"name": "mail", "type": "email", "settings": MAIL, "is_default": True}
        added = (await client.post("/api/v1/channels", json=new)).json()
        assert added["settings"].items() >= MAIL.items()
        change = {"settings": {"port": 2526}, "retry_delay_s": 5, "version": added["version"]}
        changed = (await client.patch("/api/v1/channels/mail", json=change)).json()
        assert (changed["settings"]["port"], changed["settings"]["host"]) == (2526, "127.0.0.1")
        stale = await client.patch("/api/v1/channels/mail", json=change)
        assert (stale.status_code, stale.json()["code"]) == (409, "channel.changed")
        assert (added["max_retries"], added["retry_delay_s"], changed["retry_delay_s"]) == (10, 60, 5)
        back = {"retry_delay_s": None, "max_retries": 4, "version": changed["version"]}
        kept = (await client.patch("/api/v1/channels/mail", json=back)).json()
        assert (kept["max_retries"], kept["retry_delay_s"]) == (4, 60)
        assert (await client.delete("/api/v1/channels/mail")).status_code == 204
        assert (await client.get("/api/v1/channels/mail")).status_code == 404


async def test_new_default_replaces_the_old_one(front: Front) -> None:
    async with front.client("admin") as client:
        for name in ("one", "two"):
            new = {"name": name, "type": "email", "settings": MAIL, "is_default": True}
            assert (await client.post("/api/v1/channels", json=new)).status_code == 201
        found = (await client.get("/api/v1/channels")).json()["channels"]
    assert {one["name"]: one["is_default"] for one in found} == {"one": False, "two": True}


async def test_channel_used_by_a_list_is_not_removed(front: Front) -> None:
    async with front.client("admin") as client:
        await client.post("/api/v1/channels", json={"name": "mail", "type": "email", "settings": MAIL})
        await client.post("/api/v1/lists", json={"name": "ops", "targets": ["a@example.org"], "channel": "mail"})
        answer = await client.delete("/api/v1/channels/mail")
        assert (answer.status_code, answer.json()["code"]) == (409, "channel.in_use")
        assert (await client.get("/api/v1/channels/mail")).status_code == 200


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({**MAIL, "port": "25"}, "settings.port"),
        ({**MAIL, "colour": 1}, "settings.colour"),
        ({"host": "x.example"}, "settings.tls"),
        ({}, "settings.tls"),
    ],
)
async def test_a_channel_with_wrong_settings_is_refused_by_the_setting(
    front: Front, settings: dict[str, object], field: str
) -> None:
    async with front.client("admin") as client:
        new = {"name": "mail", "type": "email", "settings": settings}
        answer = await client.post("/api/v1/channels", json=new)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_a_site_gets_a_token_that_works_and_is_shown_once(front: Front) -> None:
    async with front.client("admin") as client:
        added = (await client.post("/api/v1/sites", json={"name": "plant-9"})).json()
        sites = await client.get("/api/v1/sites")
    assert await front.operate.accounts.by_site_token(added["token"]) == SiteNode("plant-9")
    assert "plant-9" in sites.text
    assert added["token"] not in sites.text


@pytest.mark.dec("DEC-15")
async def test_every_change_is_audited_under_the_name_of_its_actor(front: Front) -> None:
    async with front.client("admin") as client:
        await client.post("/api/v1/channels", json={"name": "mail", "type": "email", "settings": MAIL})
        await client.patch("/api/v1/channels/mail", json={"settings": {"port": 26}, "version": 1})
        await client.post("/api/v1/lists", json={"name": "ops", "targets": ["a@example.org"]})
        await client.delete("/api/v1/lists/ops")
        await client.delete("/api/v1/channels/mail")
        await client.post("/api/v1/sites", json={"name": "plant-9"})
    acts = await front.centre.store.read(audited_acts)
    assert acts == sorted(
        [
            ("site.add", "plant-7", ADMIN.name),
            ("channel.add", "mail", ADMIN.name),
            ("channel.change", "mail", ADMIN.name),
            ("list.add", "ops", ADMIN.name),
            ("list.remove", "ops", ADMIN.name),
            ("channel.remove", "mail", ADMIN.name),
            ("site.add", "plant-9", ADMIN.name),
        ]
    )
    assert front.tokens[Role.ADMIN.value] not in str(acts)


async def test_a_refused_change_leaves_no_audit_entry(front: Front) -> None:
    before = await front.centre.store.read(audited_acts)
    async with front.client("admin") as client:
        await client.delete("/api/v1/lists/nothing")
        await client.post("/api/v1/sites", json={"name": "plant-7"})
    assert await front.centre.store.read(audited_acts) == before


def audited_acts(conn: Connection) -> list[tuple[str, str, str]]:
    query = "select request_summary, target, actor from audit where kind = 'operator_action'"
    return sorted((row.request_summary, row.target, row.actor) for row in conn.execute(text(query)))
