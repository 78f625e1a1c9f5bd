"""Applications that are no site hand in notifications by `POST /api/v1/notifications`."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fieldpost.core.actor import Role
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.notification import Status
from fieldpost.core.sites.usage import SiteCeilings
from support.front import ADMIN, Front, served

PATH = "/api/v1/notifications"
ID = "0198c8a0-0000-7000-8000-00000000000{n}"


def one(**more: Any) -> dict[str, Any]:
    return {"list_name": "ops", "subject": "Order 7", "body": "is late", **more}


@pytest.fixture
async def app(front: Front) -> Any:
    """An application with a token of its own."""
    token = await front.operate.tokens.add(ADMIN, "shop", Role.OPERATOR, life=timedelta(days=1))
    front.tokens["shop"] = token.token
    async with front.client("shop") as client:
        yield client


@pytest.mark.req("ING-03")
async def test_notification_of_an_application_is_delivered_under_its_name(
    front: Front, app: httpx2.AsyncClient
) -> None:
    await front.centre.add_channel()
    await front.centre.add_list()
    sent = await app.post(PATH, json=one(notification_id=ID.format(n=1), script="checkout"))
    assert (sent.status_code, sent.json()) == (201, {"notification_id": ID.format(n=1), "verdict": "accepted"})
    await front.centre.deliver()
    shown = (await app.get(f"{PATH}/{ID.format(n=1)}")).json()
    assert (shown["status"], shown["source_site"], shown["source_script"]) == ("delivered", "app:shop", "checkout")


@pytest.mark.req("CHN-01")
async def test_an_application_raises_an_alarm(front: Front, app: httpx2.AsyncClient) -> None:
    alarm = {"severity": "critical", "incident": "pump 3", "is_cleared": True}
    assert (await app.post(PATH, json=one(notification_id=ID.format(n=1), **alarm))).status_code == 201
    shown = (await app.get(f"{PATH}/{ID.format(n=1)}")).json()
    assert alarm.items() <= shown.items()
    async with front.client("viewer") as viewer:
        for query, count in (("severity=critical", 1), ("severity=info", 0), ("incident=pump%203", 1)):
            assert len((await viewer.get(f"{PATH}?{query}")).json()["notifications"]) == count


@pytest.mark.req("ING-03")
async def test_repetition_changes_nothing_and_other_content_is_rejected(front: Front, app: httpx2.AsyncClient) -> None:
    for by in ({"json": one(notification_id=ID.format(n=1))}, {"json": one(), "headers": {"Idempotency-Key": "o-7"}}):
        first, again = await app.post(PATH, **by), await app.post(PATH, **by)
        assert (first.status_code, again.status_code) == (201, 200)
        assert (again.json()["verdict"], again.json()["notification_id"]) == (
            "duplicate",
            first.json()["notification_id"],
        )
        assert is_id(again.json()["notification_id"])
        other = await app.post(PATH, **{**by, "json": by["json"] | {"body": "is lost"}})
        assert (other.status_code, other.json()["code"]) == (409, "notification.conflict")
    async with front.client("operator") as another:
        same_key = await another.post(PATH, json=one(), headers={"Idempotency-Key": "o-7"})
    assert same_key.status_code == 201, "a key is the application's own"


async def test_each_of_a_batch_gets_its_own_result(front: Front, app: httpx2.AsyncClient) -> None:
    batch = [one(notification_id=ID.format(n=n)) for n in (1, 2, 1)]
    batch[1]["subject"] = "two\nlines"
    answer = await app.post(f"{PATH}/batch", json={"notifications": batch})
    results = answer.json()["results"]
    assert answer.status_code == 200
    assert [result["verdict"] for result in results] == ["accepted", "rejected", "duplicate"]
    assert results[1]["code"] == "text.line_break"
    assert (await front.centre.get(ID.format(n=1))).status is Status.PENDING


async def test_invalid_submission_is_rejected_by_field_and_rule(front: Front, app: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "k"}
    cases: list[tuple[dict[str, Any], dict[str, str], int, str, str]] = [
        (one(), {}, 422, "notification.no_id", "notification_id"),
        (one(notification_id=ID.format(n=1)), key, 422, "notification.no_id", "notification_id"),
        (one(notification_id="7"), {}, 422, "notification.bad_id", "notification_id"),
        (one(subject="a\nb"), key, 422, "text.line_break", "subject"),
        (one(list_name=""), key, 422, "text.empty", "list_name"),
        (one(severity="high"), key, 422, "severity.unknown", "severity"),
        (one(incident="x" * 256), key, 422, "incident.length", "incident"),
        (one(colour="red"), key, 422, "body.invalid", "colour"),
        (one(body=7), key, 422, "body.invalid", "body"),
        (one(), {"Idempotency-Key": "a b"}, 400, "http.idempotency_key", "Idempotency-Key"),
        (one(), {"Idempotency-Key": "k" * 257}, 400, "http.idempotency_key", "Idempotency-Key"),
    ]
    for body, headers, status, code, field in cases:
        answer = await app.post(PATH, json=body, headers=headers)
        told = answer.json()
        assert (answer.status_code, told["code"], told.get("field")) == (status, code, field), (body, headers)
    for count in (0, 501):
        many = [one(notification_id=ID.format(n=1))] * count
        answer = await app.post(f"{PATH}/batch", json={"notifications": many})
        assert (answer.status_code, answer.json()["code"]) == (422, "submit.too_many")


async def test_site_cannot_have_the_name_of_an_application(front: Front) -> None:
    with pytest.raises(InvalidInput) as refused:
        await front.operate.sites.add(ADMIN, "app:shop")
    assert (refused.value.code, refused.value.field) == ("site.name", "name")


async def test_example_application_sends_without_duplicates(front: Front, app: Any, project: Path) -> None:
    async with served(front.app) as url:
        ran = []
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(project / "examples/app_send.py"), "order-7", "Order 7 is late"),
                env={"FIELDPOST_URL": url, "FIELDPOST_TOKEN": front.tokens["shop"]},
                stdout=asyncio.subprocess.PIPE,
            )
            out, _err = await process.communicate()
            ran.append((process.returncode, out.decode().strip()))
    assert ran[0] == ran[1]
    assert (ran[0][0], (await front.centre.get(ran[0][1])).subject) == (0, "Order 7 is late")


@pytest.mark.threat(2)
async def test_an_application_at_its_ceiling_gets_429_and_a_time_to_wait(front: Front, app: httpx2.AsyncClient) -> None:
    front.centre.ingest._ceilings._ceilings = SiteCeilings(rows_max=1)
    assert (await app.post(PATH, json=one(notification_id=ID.format(n=1)))).status_code == 201
    for path, body in (
        (PATH, one(notification_id=ID.format(n=2))),
        (f"{PATH}/batch", {"notifications": [one(notification_id=ID.format(n=n)) for n in (2, 3)]}),
    ):
        refused = await app.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "site.full")
        assert refused.headers["Retry-After"] == "30"
