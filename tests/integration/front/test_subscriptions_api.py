"""`/api/v1/subscriptions` and its commands."""

from typing import Any

import pytest

from support.front import Front

URL = "https://93.184.216.34/in"
NEW = {
    "name": "shop",
    "owner": "web team",
    "filter": [{"topic": "orders", "action": "created"}],
    "settings": {"url": URL},
}
PATH = "/api/v1/subscriptions"


async def add(front: Front, **more: Any) -> dict[str, Any]:
    async with front.client("admin") as client:
        answer = await client.post(PATH, json=NEW | more)
        assert answer.status_code == 201, answer.text
        added: dict[str, Any] = answer.json()
        return added


async def test_a_subscription_is_added_with_a_generated_secret_that_is_shown_once(front: Front) -> None:
    added = await add(front)
    assert added["new_secret"].startswith("whsec_")
    assert (added["health"], added["held"], added["state"]) == ("untried", 0, "active")
    entry = {"topic": "orders", "action": "created", "resource": None, "attributes": {}, "rule": "native"}
    assert added["filter"] == [entry]
    async with front.client("viewer") as client:
        answer = await client.get(f"{PATH}/{added['subscription_id']}")
        assert added["new_secret"] not in answer.text
        assert (answer.json()["secrets"], answer.json()["new_secret"]) == ({"secret": "set"}, None)


async def test_subscriptions_are_listed_by_name_in_pages_and_filtered(front: Front) -> None:
    ids = [(await add(front, name=name, owner=owner))["subscription_id"] for name, owner in (("b", "x"), ("a", "y"))]
    async with front.client("viewer") as client:
        first = (await client.get(PATH, params={"limit": 1})).json()
        assert [one["name"] for one in first["subscriptions"]] == ["a"]
        second = (await client.get(PATH, params={"limit": 1, "cursor": first["next_cursor"]})).json()
        assert ([one["name"] for one in second["subscriptions"]], second["next_cursor"]) == (["b"], None)
        found = (await client.get(PATH, params={"owner": "x"})).json()["subscriptions"]
        assert [one["subscription_id"] for one in found] == ids[:1]
        assert (await client.get(PATH, params={"state": "paused"})).json()["subscriptions"] == []
        assert (await client.get(PATH, params={"cursor": "x"})).status_code == 400
        assert (await client.get(f"{PATH}/unhealthy")).json()["subscriptions"] == []
        assert (await client.get(f"{PATH}/nowhere")).status_code == 404


async def test_changes_need_the_version_that_was_seen_and_keep_the_rest(front: Front) -> None:
    added = await add(front)
    path = f"{PATH}/{added['subscription_id']}"
    async with front.client("admin") as client:
        body = {"version": 1, "settings": {"url": f"{URL}/2"}, "filter": [{"attributes": {"country": "NL"}}]}
        changed = (await client.patch(path, json=body)).json()
        assert (changed["settings"]["url"], changed["version"]) == (f"{URL}/2", 2)
        assert changed["filter"][0]["attributes"] == {"country": "NL"}
        assert (await client.patch(path, json=body)).status_code == 409
        rotated = (await client.post(f"{path}/rotate", json={"version": 2})).json()
        assert rotated["new_secret"] not in (None, added["new_secret"])
        assert rotated["secrets"] == {"former_secret": "set", "secret": "set"}


async def test_states_follow_each_other(front: Front) -> None:
    path = f"{PATH}/{(await add(front))['subscription_id']}"
    async with front.client("admin") as client:
        version = 1
        for verb, state in (("pause", "paused"), ("resume", "active"), ("disable", "disabled"), ("remove", "removed")):
            moved = (await client.post(f"{path}/{verb}", json={"version": version, "reason": "moving"})).json()
            assert (moved["state"], moved["health"] in (state, "untried")) == (state, True)
            version = moved["version"]
        assert (await client.post(f"{path}/pause", json={"version": version})).status_code == 409


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"settings": {}}, "url"),
        ({"settings": {"url": "http://93.184.216.34/"}}, "url"),
        ({"filter": []}, "filter"),
        ({"filter": [{"topic": ""}]}, "filter[0].topic"),
        ({"settings": {"url": URL, "colour": "red"}}, "colour"),
        ({"retry": "sometimes"}, "retry"),
    ],
)
async def test_bad_input_names_the_field(front: Front, more: dict[str, Any], field: str) -> None:
    async with front.client("admin") as client:
        answer = await client.post(PATH, json=NEW | more)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_only_administrators_change_subscriptions(front: Front) -> None:
    added = await add(front)
    async with front.client("operator") as client:
        assert (await client.post(PATH, json=NEW | {"name": "other"})).status_code == 403
        body = {"version": 1}
        for verb in ("pause", "resume", "disable", "remove", "rotate"):
            answer = await client.post(f"{PATH}/{added['subscription_id']}/{verb}", json=body)
            assert answer.status_code == 403, verb
