"""`/api/v1/audit`: looking through the log, and carrying it away."""

import csv
import io
import json
from datetime import timedelta

import httpx2
import pytest

from fieldpost.central.access.logins import Origin
from fieldpost.central.access.refusals import ENTRIES_MAX
from fieldpost.central.operate import audit as export
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.sealer import Sealer
from fieldpost.core.errors import Denied
from fieldpost.core.search.audit_filter import AuditFilter
from support.front import ADMIN, OPERATOR, Front


async def entries(client: httpx2.AsyncClient, **query: str) -> list[dict[str, object]]:
    answer = await client.get("/api/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["entries"]
    return found


async def test_audit_entries_of_a_notification_are_found_by_id_without_its_body(front: Front) -> None:
    parked = await front.park(body="for the night shift alone")
    await front.operate.notifications.discard(OPERATOR, parked, (await front.centre.get(parked)).version)
    async with front.client("viewer") as client:
        answer = await client.get("/api/v1/audit", params={"about": parked})
        assert "night shift" not in answer.text
        told = [(one["kind"], one["status"], one["actor"]) for one in answer.json()["entries"]]
    assert told == [
        ("operator_action", "discarded", "operator"),
        ("notify_deliver", "parked", "system"),
        ("notify_deliver", "attempted", "system"),
        ("notify_send", "submitted", told[-1][2]),
    ]


async def test_actions_are_found_by_actor_and_target(front: Front) -> None:
    await front.park()
    await front.operate.lists.remove(ADMIN, "ops")
    async with front.client("viewer") as client:
        newest, *_ = await entries(client, actor="admin", target="ops")
        assert newest["request_summary"] == "list.remove"
        assert {one["kind"] for one in await entries(client, target="ops")} == {"operator_action"}
        assert [one["status"] for one in await entries(client, status="parked")] == ["parked"]
        assert await entries(client, actor="nobody") == []


async def test_pages_continue_after_the_previous_one(front: Front) -> None:
    for _ in range(3):
        await front.park()
    async with front.client("viewer") as client:
        whole = await entries(client, limit="200")
        found: list[object] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await client.get("/api/v1/audit", params={"limit": "2", **cursor})).json()
            found += page["entries"]
            if page["next_cursor"] is None:
                break
            assert page["searched_to"] == page["entries"][-1]["occurred_at"]
            cursor = {"cursor": page["next_cursor"]}
    assert found == whole
    assert len(whole) >= 9


@pytest.mark.bad_input(46)
@pytest.mark.bad_input(48)
@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ({"kind": "rumour"}, 422, "kind"),
        ({"about": "12"}, 422, "about"),
        ({"limit": "201"}, 422, "limit"),
        ({"colour": "red"}, 422, "colour"),
        ({"cursor": "x"}, 400, "cursor"),
    ],
)
async def test_invalid_audit_query_is_rejected_by_its_field(
    front: Front, query: dict[str, str], status: int, field: str
) -> None:
    async with front.client("viewer") as client:
        answer = await client.get("/api/v1/audit", params=query)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


@pytest.mark.threat(8)
async def test_only_an_admin_exports_the_log_and_the_export_is_audited(front: Front) -> None:
    for role in ("viewer", "operator"):
        async with front.client(role) as client:
            assert (await client.get("/api/v1/export/audit")).status_code == 403
    async with front.client("admin") as client:
        assert await entries(client, kind="operator_action", target="audit") == []
        assert (await client.get("/api/v1/export/audit", params={"status": "parked"})).status_code == 200
        [told] = await entries(client, kind="operator_action", target="audit")
    assert (told["actor"], told["request_summary"]) == ("admin", "audit.export")
    assert told["extra"]["filter"] == {"status": ["parked"]}  # type: ignore[index]


async def test_export_has_all_matching_entries_in_batches_and_ends_with_their_number(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "BATCH", 2)
    for _ in range(2):
        await front.park()
    front.clock.advance(1)
    async with front.client("admin") as client:
        answer = await client.get("/api/v1/export/audit", params={"kind": "notify_deliver"})
        listed = await entries(client, kind="notify_deliver")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert "attachment" in answer.headers["content-disposition"]
    *lines, end = map(json.loads, answer.text.splitlines())
    assert lines == listed
    assert end["exported"] == len(listed) == 4


@pytest.mark.bad_input(56)
async def test_a_spreadsheet_runs_nothing_of_an_export(front: Front) -> None:
    await front.park(script="=cmd()|' /C calc'!A0")
    front.clock.advance(1)
    async with front.client("admin") as client:
        answer = await client.get("/api/v1/export/audit", params={"format": "csv", "kind": "notify_send"})
    head, row, end = csv.reader(io.StringIO(answer.text))
    told = dict(zip(head, row, strict=True))
    assert told["source_script"] == told["actor"] == "'=cmd()|' /C calc'!A0"
    assert end[0].startswith("# 1 entries as of ")


async def test_an_unknown_format_is_refused_before_anything_leaves(front: Front) -> None:
    async with front.client("admin") as client:
        answer = await client.get("/api/v1/export/audit", params={"format": "xls"})
        assert (answer.status_code, answer.json()["code"]) == (422, "export.format")
        assert await entries(client, target="audit") == []


async def test_entries_written_during_an_export_are_not_in_it(front: Front) -> None:
    await front.park()
    exported = await front.operate.audit.export(ADMIN, AuditFilter())
    front.clock.advance(1)
    later = await front.park()
    found = [entry async for batch in exported.batches for entry in batch]
    assert found
    assert later not in {entry.correlation_id for entry in found}


@pytest.mark.threat(9)
async def test_refused_logins_and_denied_actions_are_entries_and_repetitions_are_counted(front: Front) -> None:
    here = Origin("192.0.2.7")
    for _ in range(3):
        with pytest.raises(Denied):
            await front.operate.logins.log_in("viewer", "wrong", here)
    front.clock.advance(1)
    with pytest.raises(Denied):
        await front.operate.logins.log_in("my password by mistake", "wrong", here)
    front.clock.advance(1)
    async with front.client("viewer") as client:
        for _ in range(2):
            assert (await client.get("/api/v1/export/audit")).status_code == 403
        found = await entries(client, kind="inbound_auth_failure")
    assert [(e["actor"], e["request_summary"], e["target"]) for e in found] == [
        ("viewer", "GET /api/v1/export/audit", None),
        ("anonymous", "session.open", None),
        ("anonymous", "session.open", "viewer"),
    ]
    assert "my password" not in str(found)
    front.clock.advance(61)
    async with front.client("viewer") as client:
        assert (await client.get("/api/v1/export/audit")).status_code == 403
        newest, *_ = await entries(client, kind="inbound_auth_failure")
    assert newest["extra"] == {"code": "access.role", "address": "127.0.0.1", "repeated": 1}


@pytest.mark.threat(9)
async def test_refusals_cannot_fill_the_log(front: Front) -> None:
    refusals = front.operate.refusals
    for number in range(ENTRIES_MAX + 40):
        await refusals.note(Denied("auth.invalid", "the token is not valid"), "GET /x", address=f"192.0.2.{number}")
    ((count,),) = await front.centre.rows("select count(*) from audit where kind = 'inbound_auth_failure'")
    assert count == ENTRIES_MAX


async def test_a_caller_without_a_token_leaves_no_entry(front: Front) -> None:
    async with front.client() as client:
        assert (await client.get("/api/v1/audit")).status_code == 401
    assert await front.centre.rows("select count(*) from audit where kind = 'inbound_auth_failure'") == [(0,)]


async def test_a_verification_by_the_api_names_what_it_found(front: Front) -> None:
    await front.park()
    leader = Leader(front.centre.store, "node-1", front.clock)
    await leader.campaign()
    sealer = Sealer(front.centre.store, front.clock, leader, front.centre.keyring, timedelta(days=365))
    count = await sealer.sweep()
    async with front.client("admin") as client:
        found = (await client.get("/api/v1/audit/verification")).json()
        assert (found["findings"], found["entries"], found["next_batch"], found["last_batch"]) == ([], count, None, 1)
        keys = (await client.get("/api/v1/audit/public-keys")).json()["public_keys"]
        assert keys == [key.hex() for key in front.centre.keyring.public_keys]
        for query, code in (
            ({"from_batch": "x"}, "query.number"),
            ({"from_batch": "false", "since": "2026-01-01T00:00:00Z"}, "query.number"),
            ({"since": "today"}, "query.moment"),
        ):
            answer = await client.get("/api/v1/audit/verification", params=query)
            assert (answer.status_code, code in answer.text) == (422, True)
    async with front.client("operator") as client:
        assert (await client.get("/api/v1/audit/verification")).status_code == 403
