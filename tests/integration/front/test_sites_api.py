"""Sites, their calls and intents as programs see them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldpost.core.sites.message import Category
from fieldpost.core.times import to_text
from fieldpost.link.messages import CommandResult, Health
from fieldpost.testing import ManualClock
from support.calls import Calls
from support.centre import SITE
from support.front import ADMIN, Front


@pytest.fixture
def calls(tmp_path: Path, clock: ManualClock) -> Iterator[Calls]:
    opened = Calls(tmp_path / "buffer.db", clock)
    yield opened
    opened.close()


async def ask(front: Front, path: str, answer_status: int = 200, **query: Any) -> Any:
    async with front.client("viewer") as client:
        answer = await client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == answer_status, answer.text
    return answer.json()


async def post(front: Front, path: str, body: object, caller: str = "operator", status: int = 201) -> Any:
    async with front.client(caller) as client:
        answer = await client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.req("TEL-11")
@pytest.mark.threat(6)
async def test_call_is_shown_as_reported_and_no_action_at_central_edits_it(
    front: Front, calls: Calls, clock: ManualClock
) -> None:
    one = calls.parked()
    await front.centre.ingest.mirrors.telemetry(SITE, calls.told())
    before = (await ask(front, f"cached-calls/{one}", site=SITE))["cached_call"]
    assert (before["status"], before["target"], before["site"]) == ("parked", "erp POST /orders", SITE)
    (given,) = (await post(front, "intents", {"site": SITE, "kind": "retry", "message_ids": [one]}))["intents"]
    (intent,) = await front.commands.intents.of([SITE], 10)
    await front.commands.intents.to_send([intent])
    await front.commands.intents.settle(SITE, CommandResult(given["intent_id"], "applied"))
    clock.advance(1)
    detail = await ask(front, f"cached-calls/{one}", site=SITE)
    assert detail["cached_call"] == before
    assert [(i["kind"], i["state"], i["outcome"], i["actor"]) for i in detail["intents"]] == [
        ("retry", "done", "applied", "operator")
    ]
    calls.retry(one)
    await front.centre.ingest.mirrors.telemetry(SITE, calls.told())
    after = (await ask(front, f"cached-calls/{one}", site=SITE))["cached_call"]
    assert (after["status"], after["version"]) == ("retrying", before["version"] + 1)


async def test_calls_are_found_by_every_filter_and_page_by_page(front: Front, calls: Calls, clock: ManualClock) -> None:
    mirrors = front.centre.ingest.mirrors
    parked = calls.parked("mes")
    written = calls.issue("plant", Category.DATABASE_WRITE)
    await mirrors.telemetry(SITE, calls.told())
    clock.advance(60)
    later = to_text(clock.now())
    rest = [calls.issue() for _ in range(3)]
    await mirrors.telemetry(SITE, calls.told())
    await mirrors.telemetry("north", calls.told())

    async def found(**query: Any) -> set[tuple[str, str]]:
        answer = await ask(front, "cached-calls", **query)
        return {(one["site"], one["call_id"]) for one in answer["cached_calls"]}

    mine = {(SITE, one) for one in (parked, written, *rest)}
    assert await found(site=SITE) == mine
    assert await found() == mine | {("north", one) for _, one in mine}
    assert await found(site=SITE, status="parked") == {(SITE, parked)}
    assert await found(site=SITE, status=["parked", "delivered"]) == {(SITE, parked)}
    assert await found(site=SITE, category="database_write") == {(SITE, written)}
    assert await found(**{"site": SITE, "from": later}) == {(SITE, one) for one in rest}
    assert await found(**{"site": SITE, "to": later}) == {(SITE, parked), (SITE, written)}
    assert await found(site=SITE, target="MES orders") == {(SITE, parked)}
    assert await found(site=SITE, target="order") == set()
    pages, cursor = [], None
    while True:
        answer = await ask(front, "cached-calls", limit=4, **({"cursor": cursor} if cursor else {}))
        pages += [(one["site"], one["call_id"]) for one in answer["cached_calls"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert len(pages) == len(set(pages)) == 10


async def test_invalid_query_is_rejected_by_its_field(front: Front) -> None:
    for query, code in (
        ({"status": "sleeping"}, "filter.choice"),
        ({"category": "notification"}, "filter.choice"),
        ({"from": "yesterday"}, "filter.time"),
        ({"from": "2026-11-15T08:00:00Z", "to": "2026-11-14T08:00:00Z"}, "filter.range"),
        ({"target": "+++"}, "filter.words"),
        ({"limit": "0"}, "limit.range"),
        ({"limit": "x"}, "limit.range"),
        ({"colour": "red"}, "query.unknown"),
    ):
        assert (await ask(front, "cached-calls", 422, **query))["code"] == code
    assert (await ask(front, "cached-calls", 400, cursor="nonsense"))["code"] == "cursor.invalid"
    assert (await ask(front, "intents", 422, state="asleep"))["code"] == "filter.choice"


async def test_a_stuck_call_is_shown_as_stuck(front: Front, calls: Calls, clock: ManualClock) -> None:
    one = calls.issue()
    await front.centre.ingest.mirrors.telemetry(SITE, calls.told())
    clock.advance(600)
    assert not (await ask(front, f"cached-calls/{one}", site=SITE))["cached_call"]["is_stuck"]
    clock.advance(1)
    assert (await ask(front, f"cached-calls/{one}", site=SITE))["cached_call"]["is_stuck"]
    await ask(front, f"cached-calls/{one}", 404, site="north")
    await ask(front, "cached-calls/nonsense", 404, site=SITE)
    await ask(front, f"cached-calls/{one}", 422)


@pytest.mark.req("DEC-27")
async def test_intent_for_an_offline_site_is_shown_as_waiting_and_can_be_cancelled(
    front: Front, clock: ManualClock
) -> None:
    given = await post(front, "intents", {"site": SITE, "kind": "list_parked", "reason": "look"})
    (one,) = given["intents"]
    assert (one["state"], one["outcome"], one["reason"]) == ("waiting", None, "look")
    assert await ask(front, f"intents/{one['intent_id']}") == one
    assert (await ask(front, "intents", site=SITE, state="waiting"))["intents"] == [one]
    assert (await ask(front, "intents", state="done"))["intents"] == []
    site = (await ask(front, f"site-health/{SITE}"))["site"]
    assert (site["open_intents"], site["link"]) == (1, "offline")
    cancelled = await post(front, f"intents/{one['intent_id']}/cancel", {}, status=200)
    assert cancelled["state"] == "cancelled"
    await post(front, f"intents/{one['intent_id']}/cancel", {}, status=409)
    clock.advance(1)
    await post(front, "intents", {"site": SITE, "kind": "list_rejected"})
    page = await ask(front, "intents", limit=1)
    assert page["intents"][0]["kind"] == "list_rejected"
    (rest,) = (await ask(front, "intents", limit=1, cursor=page["next_cursor"]))["intents"]
    assert rest["intent_id"] == one["intent_id"]


async def test_invalid_intent_is_rejected(front: Front) -> None:
    for body, status, code in (
        ({"site": SITE, "kind": "explode"}, 422, "intent.kind"),
        ({"site": "south", "kind": "list_parked"}, 404, "site.unknown"),
        ({"site": SITE, "kind": "retry", "message_ids": ["x"]}, 422, "intent.bad_id"),
        ({"site": SITE, "kind": "retry", "colour": "red"}, 422, "body.invalid"),
    ):
        assert (await post(front, "intents", body, status=status))["code"] == code
        assert (await post(front, "intents", body, caller="viewer", status=403))["code"] == "access.role"


@pytest.mark.req("SF-21")
async def test_sites_are_listed_with_their_reports_and_in_the_metrics(front: Front, clock: ManualClock) -> None:
    await front.operate.sites.add(ADMIN, "north")
    told = Health(
        sent_at=to_text(clock.now()),
        version="1.2.3",
        backlog={"notification": 41, "external_call": 1},
        oldest_age_s=12.5,
        parked=2,
        rejected=3,
        disk_free_bytes=10**9,
    )
    await front.centre.ingest.health.keep(SITE, told)
    clock.advance(10)
    sites = {one["name"]: one for one in (await ask(front, "site-health"))["sites"]}
    assert {name: one["link"] for name, one in sites.items()} == {SITE: "online", "north": "offline"}
    assert sites[SITE]["backlog"] == {"notification": 41, "external_call": 1}
    assert (sites[SITE]["parked"], sites[SITE]["rejected"], sites[SITE]["version"]) == (2, 3, "1.2.3")
    assert sites["north"]["backlog"] is None
    async with front.client("viewer") as client:
        text = (await client.get("/metrics")).text
    for line in (
        f'fieldpost_site_link_state{{site="{SITE}",state="online"}} 1.0',
        'fieldpost_site_link_state{site="north",state="offline"} 1.0',
        f'fieldpost_site_report_age_seconds{{site="{SITE}"}} 10.0',
        f'fieldpost_site_buffer_depth{{category="notification",site="{SITE}"}} 41.0',
        f'fieldpost_site_buffer_oldest_seconds{{site="{SITE}"}} 12.5',
        f'fieldpost_site_buffer_parked{{site="{SITE}"}} 2.0',
        f'fieldpost_site_buffer_rejected{{site="{SITE}"}} 3.0',
        f'fieldpost_site_disk_free_bytes{{site="{SITE}"}} 1e+09',
        f'fieldpost_site_open_intents{{site="{SITE}"}} 0.0',
    ):
        assert line in text.splitlines()
    await ask(front, "site-health/south", 404)
    await ask(front, f"site-health/{SITE}/history")
    await ask(front, f"site-health/{SITE}/history", 422, to="soon")


async def test_figures_of_calls_are_shown_beside_those_of_notifications(
    front: Front, calls: Calls, clock: ManualClock
) -> None:
    calls.parked()
    calls.fail(calls.issue())
    calls.deliver(calls.issue())
    calls.issue()
    clock.advance(30)
    await front.centre.ingest.mirrors.telemetry(SITE, calls.told())
    kpis = (await ask(front, "kpis"))["kpis"]
    assert {name: value for name, value in kpis.items() if name.startswith("calls_")} == {
        "calls_buffered": 1,
        "calls_stuck": 0,
        "calls_parked": 1,
        "calls_delivered_last_interval": 1,
        "calls_failed_last_interval": 1,
        "calls_oldest_pending_age_s": 30,
    }
