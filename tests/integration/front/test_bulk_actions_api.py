"""`/api/v1/bulk-actions`: preview, start, follow and cancel over HTTP."""

from typing import Any

import httpx2
import pytest

from fieldpost.core.notification import Status
from support.front import Front

UNKNOWN = "0198c8a0-0000-7000-8000-000000000001"


async def post(front: Front, path: str, body: object, caller: str = "operator") -> httpx2.Response:
    async with front.client(caller) as client:
        return await client.post(f"/api/v1/bulk-actions{path}", json=body)


async def get(front: Front, path: str, caller: str = "viewer") -> dict[str, Any]:
    async with front.client(caller) as client:
        answer = await client.get(f"/api/v1/bulk-actions{path}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.req("CMD-04", "CMD-08")
async def test_action_is_previewed_started_followed_and_lists_its_rows(front: Front) -> None:
    ids = [await front.park(subject=f"Pump {number} is hot") for number in range(3)]
    other = await front.park(subject="Tank 12 is low")
    preview = (await post(front, "/preview", {"filter": {"subject": "pump"}}, "viewer")).json()
    assert (preview["count"], preview["is_whole"]) == (3, True)
    late = await front.park(subject="Pump 9 is hot")

    said = {"verb": "retry", "reason": "mended", "filter": {"subject": "pump"}, "as_of": preview["as_of"]}
    answer = await post(front, "", said)
    act = answer.json()
    assert (answer.status_code, act["status"], act["actor"]) == (202, "gathering", "operator")
    assert answer.headers["location"] == f"/api/v1/bulk-actions/{act['action_id']}"
    await front.operate.bulk_actions.sweep()
    ended = await get(front, f"/{act['action_id']}")
    assert {name: ended[name] for name in ("status", "total", "done", "refused", "reason", "filter")} == {
        "status": "finished",
        "total": 3,
        "done": 3,
        "refused": 0,
        "reason": "mended",
        "filter": {"status": ["parked"], "subject": "pump"},
    }
    assert [one["action_id"] for one in (await get(front, ""))["bulk_actions"]] == [act["action_id"]]
    assert {(await front.centre.get(i)).status for i in (other, late)} == {Status.PARKED}

    path, seen, cursor = f"/{act['action_id']}/rows?limit=2", [], ""
    while True:
        page = await get(front, path + cursor)
        seen += page["rows"]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert ({row["notification_id"] for row in seen}, {row["outcome"] for row in seen}) == (set(ids), {"done"})
    assert (await get(front, f"/{act['action_id']}/rows?outcome=conflict"))["rows"] == []


async def test_selection_contains_the_versions_seen(front: Front) -> None:
    first, second = [await front.park(), await front.park()]
    version = (await front.centre.get(first)).version
    chosen = [{"notification_id": first, "version": version}, {"notification_id": second, "version": version + 1}]
    act = (await post(front, "", {"verb": "discard", "reason": "old", "notifications": chosen})).json()
    assert (act["status"], act["total"], act["filter"]) == ("running", 2, None)
    await front.operate.bulk_actions.sweep()
    rows = {row["notification_id"]: row for row in (await get(front, f"/{act['action_id']}/rows"))["rows"]}
    assert (rows[first]["outcome"], rows[first]["current_status"]) == ("done", None)
    assert (rows[second]["outcome"], rows[second]["current_status"]) == ("conflict", "parked")


async def test_running_action_is_cancelled(front: Front) -> None:
    parked = await front.park()
    act = (await post(front, "", {"verb": "discard", "reason": "oh no", "filter": {}})).json()
    answer = await post(front, f"/{act['action_id']}/cancel", {})
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["note"] == "cancelled by operator"
    await front.operate.bulk_actions.sweep()
    assert (await front.centre.get(parked)).status is Status.PARKED


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"verb": "delete"}, "bulk.verb", "verb"),
    ({"reason": ""}, "text.empty", "reason"),
    ({"filter": None}, "bulk.about", "filter"),
    ({"notifications": []}, "bulk.about", "filter"),
    ({"filter": {"colour": "red"}}, "filter.unknown", "colour"),
    ({"filter": {"site": ["a", "b"]}}, "filter.one", "site"),
    ({"filter": {"status": "delivered"}}, "bulk.status", "status"),
    ({"filter": {"stuck": "true"}}, "bulk.stuck", "stuck"),
    ({"filter": {"overdue": "true"}}, "bulk.overdue", "overdue"),
    ({"as_of": "yesterday"}, "filter.time", "as_of"),
    ({"verb": "discard", "in_stages": True}, "bulk.stages", "in_stages"),
    ({"filter": None, "notifications": []}, "bulk.selection", "notifications"),
    ({"filter": None, "notifications": [{"notification_id": "1"}]}, "notification.bad_id", "notification_id"),
    ({"colour": "red"}, "body.invalid", "colour"),
]


@pytest.mark.bad_input(46)
async def test_invalid_action_is_rejected_by_field_and_not_started(front: Front) -> None:
    for change, code, field in WRONG:
        answer = await post(front, "", {"verb": "retry", "reason": "mended", "filter": {}} | change)
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field), change
    assert (await get(front, ""))["bulk_actions"] == []


@pytest.mark.bad_input(48)
async def test_invalid_queries_for_rows_are_rejected(front: Front) -> None:
    act = (await post(front, "", {"verb": "retry", "reason": "mended", "filter": {}})).json()
    async with front.client("viewer") as client:
        for path, status, code in (
            (f"{act['action_id']}/rows?cursor=-1", 400, "cursor.invalid"),
            (f"{act['action_id']}/rows?limit=0", 422, "limit.range"),
            (f"{act['action_id']}/rows?outcome=lost", 422, "bulk.outcome"),
            (f"{UNKNOWN}/rows", 404, "bulk.unknown"),
            ("nonsense", 404, "bulk.unknown"),
        ):
            answer = await client.get(f"/api/v1/bulk-actions/{path}")
            assert (answer.status_code, answer.json()["code"]) == (status, code), path


@pytest.mark.threat(7)
async def test_viewer_may_preview_and_read_only(front: Front) -> None:
    await front.park()
    assert (await post(front, "/preview", {"filter": {}}, "viewer")).status_code == 200
    refused = await post(front, "", {"verb": "retry", "reason": "please", "filter": {}}, "viewer")
    assert (refused.status_code, refused.json()["code"]) == (403, "access.role")
