"""A target's stored secret is never sent to another place by a change of its channel, unless it is given again."""

from typing import Any

import httpx2
import pytest

from support.front import Front
from support.visitor import visiting

KEY = "0123456789abcdef0123456789abcdef"
OURS, THEIRS = {"url": "https://127.0.0.1"}, {"url": "https://127.0.0.2"}
DUTY = {"name": "duty", "type": "pagerduty", "targets": ["desk"], "secrets": {"desk": KEY}}


async def add_channel(client: httpx2.AsyncClient, name: str, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/v1/channels", json={"name": name, "type": "pagerduty", "settings": OURS, **body})
    assert answer.status_code == status, answer.text
    return answer.json()


async def set_up(client: httpx2.AsyncClient, **body: Any) -> None:
    await add_channel(client, "pager", **body)
    answer = await client.post("/api/v1/lists", json=DUTY)
    assert answer.status_code == 201, answer.text


async def key_of(front: Front) -> str:
    """What the adapter would be handed."""
    found = await front.operate.lists.get("duty")
    return front.centre.keyring.open_targets("duty", found.secrets)["desk"].reveal()


def check_refused(answer: dict[str, Any], field: str | None = None) -> None:
    assert (answer["code"], answer.get("field")) == ("list.secrets_again", field), answer
    assert "list 'duty'" in answer["detail"]
    assert "desk" in answer["detail"]
    assert KEY not in str(answer)


@pytest.mark.threat(32)
@pytest.mark.req("CHN-04")
async def test_change_of_a_channel_is_refused_while_it_would_send_routing_keys_elsewhere(front: Front) -> None:
    """By its URL, or as the new default of the type, or as the only channel that is left."""
    async with front.client("admin") as client:
        await set_up(client, is_default=True)
        refused = await client.patch("/api/v1/channels/pager", json={"version": 1, "settings": THEIRS})
        assert refused.status_code == 422
        check_refused(refused.json())
        check_refused(await add_channel(client, "other", 422, settings=THEIRS, is_default=True))
        await add_channel(client, "other", settings=THEIRS)
        check_refused((await client.patch("/api/v1/channels/other", json={"version": 1, "is_default": True})).json())
        # Without a default the list has no channel at all, and then the other one would be the only one left.
        assert (await client.patch("/api/v1/channels/pager", json={"version": 1, "is_default": False})).is_success
        check_refused((await client.delete("/api/v1/channels/pager")).json())
        check_refused((await client.patch("/api/v1/channels/other", json={"version": 1, "is_default": True})).json())
        names = [(one["name"], one["settings"]) for one in (await client.get("/api/v1/channels")).json()["channels"]]
        assert sorted(names) == [("other", THEIRS), ("pager", OURS)], "nothing was written"
        for change in ({"max_retries": 3}, {"settings": OURS}):
            version = (await client.get("/api/v1/channels/pager")).json()["version"]
            kept = await client.patch("/api/v1/channels/pager", json={"version": version, **change})
            assert kept.status_code == 200, kept.text
    assert await key_of(front) == KEY


@pytest.mark.threat(32)
@pytest.mark.req("CHN-04")
async def test_list_takes_another_channel_only_with_its_routing_keys(front: Front) -> None:
    async with front.client("admin") as client:
        await set_up(client, is_default=True)
        await add_channel(client, "same")
        await add_channel(client, "other", settings=THEIRS)
        moved = await client.patch("/api/v1/lists/duty", json={"version": 1, "channel": "same"})
        assert moved.status_code == 200, "the same place"
        bad: list[dict[str, Any]] = [{}, {"secrets": {"desk": ""}}, {"targets": ["desk", "b"], "secrets": {"b": KEY}}]
        for also in bad:
            refused = await client.patch("/api/v1/lists/duty", json={"version": 2, "channel": "other", **also})
            assert refused.status_code == 422
            check_refused(refused.json(), "secrets.desk")
        entry = {"name": "duty", "type": "pagerduty", "targets": ["desk"], "channel": "other"}
        for query in ("?dry_run=true", ""):
            refused = await client.post(f"/api/v1/import/lists{query}", json={"lists": [entry]})
            assert refused.status_code == 422
            check_refused(refused.json(), "lists[0].secrets.desk")
        again = await client.patch(
            "/api/v1/lists/duty", json={"version": 2, "channel": "other", "secrets": {"desk": KEY}}
        )
        assert (again.status_code, again.json()["channel"]) == (200, "other"), "the same key, but given again"
        back = await client.post(
            "/api/v1/import/lists", json={"lists": [{**entry, "channel": "same", "secrets": {"desk": KEY}}]}
        )
        assert back.status_code == 200, back.text
        cleared = {"version": 4, "channel": "other", "secrets": {"desk": None}}
        assert (await client.patch("/api/v1/lists/duty", json=cleared)).status_code == 200, "no secret is left"


@pytest.mark.threat(32)
async def test_list_without_a_channel_gets_one_only_with_its_routing_keys(front: Front) -> None:
    async with front.client("admin") as client:
        assert (await client.post("/api/v1/lists", json=DUTY)).status_code == 201
        check_refused(await add_channel(client, "pager", 422))
        assert (await client.patch("/api/v1/lists/duty", json={"version": 1, "secrets": {"desk": None}})).is_success
        await add_channel(client, "pager")


@pytest.mark.threat(32)
async def test_channel_of_hooks_may_change_because_their_urls_are_the_secrets(front: Front) -> None:
    hooks = {"secrets": {"room": "https://hooks.example/services/1"}, "targets": ["room"]}
    async with front.client("admin") as client:
        for name, settings in (("blocks", {}), ("text", {"style": "text"})):
            body = {"name": name, "type": "slack", "settings": settings}
            assert (await client.post("/api/v1/channels", json=body)).status_code == 201
        new = {"name": "rooms", "type": "slack", "channel": "blocks", **hooks}
        assert (await client.post("/api/v1/lists", json=new)).status_code == 201
        changed = await client.patch("/api/v1/channels/blocks", json={"version": 1, "settings": {"style": "text"}})
        assert changed.status_code == 200, changed.text
        moved = await client.patch("/api/v1/lists/rooms", json={"version": 1, "channel": "text"})
        assert moved.status_code == 200, moved.text


@pytest.mark.threat(32)
async def test_pages_of_channel_and_list_name_the_keys_to_give_again(front: Front) -> None:
    async with front.client("admin") as client:
        await set_up(client, is_default=True)
        await add_channel(client, "other", settings=THEIRS)
    async with visiting(front, "admin") as visitor:
        await visitor.look("/channels/pager")
        await visitor.send("/channels/pager/change", **{"settings.url": THEIRS["url"], "is_default": "true"})
        assert "List 'duty': the secrets of its targets must be given again" in visitor.text
        assert "marked field" not in visitor.text
        form = {"targets": "desk", "channel": "other"}
        await visitor.look("/lists/duty")
        await visitor.send("/lists/duty/change", **form)
        assert "would be sent to another place: desk. Give the secrets of these targets" in visitor.text
        assert (await visitor.send("/lists/duty/change", **form, secrets=f"desk = {'f' * 32}")).status_code == 303
    assert await key_of(front) == "f" * 32
