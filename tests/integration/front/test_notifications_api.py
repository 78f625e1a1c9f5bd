"""`/api/v1/notifications`: look at any time, retry and discard when parked, and only as seen."""

import json
from typing import Any

import httpx2
import pytest

from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.front import Front

UNKNOWN = "0198c8a0-0000-7000-8000-000000000001"


@pytest.mark.req("CMD-03")
async def test_detail_is_complete_in_every_status(front: Front) -> None:
    parked = await front.park(subject="Pump 3 is hot", body="92 °C", script="watch.py", instance="pump-3")
    delivered = await front.deliver()
    pending = await front.centre.send("ops")
    async with front.client("operator") as client:
        details = {i: (await client.get(f"/api/v1/notifications/{i}")).json() for i in (parked, delivered, pending)}
    assert [details[i]["status"] for i in (parked, delivered, pending)] == ["parked", "delivered", "pending"]
    story = details[parked]
    assert (story["subject"], story["body"], story["list_name"]) == ("Pump 3 is hot", "92 °C", "ops")
    assert (story["source_site"], story["source_script"], story["source_instance"]) == ("plant-7", "watch.py", "pump-3")
    (target,) = story["targets"]
    assert (target["address"], target["status"]) == ("ops@example.org", "failed")
    assert target["error"] == "550 5.1.1 no such user"
    assert [(a["outcome"], a["phase"], a["reply"]) for a in story["attempts"]] == [
        ("permanent_failure", "rcpt", "550 5.1.1 no such user")
    ]
    assert [(e["kind"], e["status"]) for e in story["audit"]] == [
        ("notify_send", "submitted"),
        ("notify_deliver", "attempted"),
        ("notify_deliver", "parked"),
    ]
    assert "550 5.1.1 no such user" in story["why"]
    assert (story["created_at"][-1], len(story["created_at"])) == ("Z", 27)


@pytest.mark.threat(8)
async def test_subject_body_and_addresses_are_visible_to_operators_only(front: Front) -> None:
    parked = await front.park(body="The gate code is 4711")
    for role, is_shown in (("viewer", False), ("operator", True), ("admin", True)):
        async with front.client(role) as client:
            detail = await client.get(f"/api/v1/notifications/{parked}")
            assert (detail.json()["body"] == "The gate code is 4711", "4711" in detail.text) == (is_shown, is_shown)
            assert "4711" not in (await client.get("/api/v1/notifications?limit=100")).text
            assert (await client.get("/api/v1/notifications?limit=100000")).status_code == 422


@pytest.mark.req("CMD-04", "CMD-08")
async def test_parked_notification_is_delivered_after_a_retry(front: Front, clock: ManualClock) -> None:
    await front.centre.add_channel(max_retries=2, retry_delay_s=60.0)
    await front.centre.add_list("flaky")
    front.centre.adapter.answer("flaky", TransientFailure("451 busy"), TransientFailure("451 busy"))
    parked = await front.centre.send("flaky")
    await front.centre.deliver()
    clock.advance(61)
    await front.centre.deliver()
    before = await front.centre.get(parked)
    assert (before.status, before.retry_count) == (Status.PARKED, 2)

    answer = await act(front, "retry", parked, before.version)
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    after = await front.centre.get(parked)
    assert (after.status, after.retry_count, after.next_attempt_at, after.last_error) == (Status.PENDING, 0, None, None)
    assert (after.cycle, after.terminal_at) == (2, None)
    assert after.due_at is not None
    assert after.due_at <= clock.now()

    await front.centre.deliver()
    assert (await front.centre.get(parked)).status is Status.DELIVERED
    assert [a.cycle for a in await front.centre.attempts(parked)] == [1, 1, 2]


@pytest.mark.dec("DEC-15")
@pytest.mark.parametrize(("verb", "status"), [("retry", "submitted"), ("discard", "discarded")])
async def test_actions_of_an_operator_are_audited_under_their_name(front: Front, verb: str, status: str) -> None:
    parked = await front.park()
    await act(front, verb, parked, (await front.centre.get(parked)).version)
    entry = (await front.centre.audit(parked))[-1]
    assert (entry.kind, entry.status, entry.actor) == ("operator_action", status, "operator")
    assert entry.correlation_id == parked


@pytest.mark.req("CMD-05", "CMD-09", "AUD-07")
async def test_discard_of_a_parked_notification_is_final(front: Front) -> None:
    parked = await front.park()
    answer = await act(front, "discard", parked, (await front.centre.get(parked)).version)
    assert (answer.status_code, answer.json()["status"]) == (200, "discarded")
    after = await front.centre.get(parked)
    assert (after.status, after.due_at) == (Status.DISCARDED, None)
    assert after.terminal_at is not None
    entry = (await front.centre.audit(parked))[-1]
    assert (entry.status, entry.error_message) == ("discarded", None)
    await front.centre.deliver()
    assert front.centre.adapter.sent() == [parked], "the one attempt before it was discarded"


@pytest.mark.req("CMD-04", "CMD-05")
@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_only_parked_notifications_are_retried_or_discarded(front: Front, verb: str) -> None:
    delivered = await front.deliver()
    pending = await front.centre.send("ops")
    for notification_id in (delivered, pending):
        before = await front.centre.get(notification_id)
        answer = await act(front, verb, notification_id, before.version)
        assert (answer.status_code, answer.json()["code"]) == (409, "notification.not_parked")
        assert answer.json()["current_status"] == before.status
        assert await front.centre.get(notification_id) == before


@pytest.mark.dec("DEC-03")
@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_action_on_an_outdated_version_changes_nothing(front: Front, verb: str) -> None:
    parked = await front.park()
    before = await front.centre.get(parked)
    answer = await act(front, verb, parked, before.version - 1)
    assert (answer.status_code, answer.json()["code"]) == (409, "notification.changed")
    assert answer.json()["current_version"] == before.version
    assert await front.centre.get(parked) == before
    assert len(await front.centre.audit(parked)) == 3


async def test_second_of_two_actions_on_the_same_version_is_a_conflict(front: Front) -> None:
    parked = await front.park()
    version = (await front.centre.get(parked)).version
    answers = [await act(front, "retry", parked, version), await act(front, "discard", parked, version)]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert (await front.centre.get(parked)).status is Status.PENDING


async def test_retry_wakes_the_dispatcher(front: Front) -> None:
    parked = await front.park()
    wake = front.centre.store.wake
    while await wake.wait(0.01):
        pass
    await act(front, "retry", parked, (await front.centre.get(parked)).version)
    assert await wake.wait(0)


async def test_pages_follow_each_other_without_a_gap_or_a_repeat(front: Front, clock: ManualClock) -> None:
    sent = []
    for _ in range(7):
        # Several share a moment, as the items of one batch do.
        sent += await front.centre.send_many(3)
        clock.advance(1)
    seen: list[str] = []
    cursor: str | None = None
    async with front.client("viewer") as client:
        while True:
            query: dict[str, Any] = {"limit": 4} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/api/v1/notifications", params=query)).json()
            seen += [line["notification_id"] for line in page["notifications"]]
            if (cursor := page["next_cursor"]) is None:
                break
            assert len(page["notifications"]) == 4
            await front.centre.send()
    assert seen == sorted(sent, reverse=True)


async def test_filters_select_by_status_list_and_site(front: Front) -> None:
    parked = await front.park()
    delivered = await front.deliver()
    pending = await front.centre.send("ops", site="plant-8")
    cases = {
        "status=parked": [parked],
        "status=parked&status=delivered": [delivered, parked],
        "site=plant-8": [pending],
        "site=plant-9": [],
        "list=ops&status=pending": [pending],
        "list=OPS": [],
    }
    async with front.client("viewer") as client:
        for query, wanted in cases.items():
            page = (await client.get(f"/api/v1/notifications?{query}")).json()
            assert sorted(line["notification_id"] for line in page["notifications"]) == sorted(wanted), query


@pytest.mark.parametrize("given", [UNKNOWN, UNKNOWN.upper(), "x", "%00", "..", "' or 1=1"])
async def test_unknown_id_is_not_found(front: Front, given: str) -> None:
    async with front.client("operator") as client:
        assert (await client.get(f"/api/v1/notifications/{given}")).status_code == 404
        answer = await client.post(f"/api/v1/notifications/{given}/retry", json={"version": 1})
    assert answer.status_code == (404 if given in (UNKNOWN, "..") else 422)


async def act(front: Front, verb: str, notification_id: str, version: int) -> httpx2.Response:
    async with front.client("operator") as client:
        return await client.post(f"/api/v1/notifications/{notification_id}/{verb}", json={"version": version})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "version"),
        ({"version": "1"}, "version"),
        ({"version": 1.5}, "version"),
        ({"version": None}, "version"),
        ({"version": 1, "reason": "x"}, "reason"),
    ],
)
async def test_action_without_a_version_is_rejected(front: Front, body: dict[str, object], field: str) -> None:
    async with front.client("operator") as client:
        content = json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        answer = await client.post(f"/api/v1/notifications/{UNKNOWN}/retry", content=content, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
