"""KPIs, their history, nodes, metrics and readiness, as a program is told of them."""

import re
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fieldpost.central.store.figures import leases, nodes
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.sampler import Sampler
from fieldpost.core.delivery.outcome import Held, TransientFailure
from fieldpost.core.errors import Unavailable
from fieldpost.core.kpi import KPIS, NAMES, Thresholds
from fieldpost.core.times import to_text
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import Front
from support.hooks import FAILED, Hooks


async def get(front: Front, path: str, caller: str | None = "viewer", **query: str) -> httpx2.Response:
    async with front.client(caller) as client:
        return await client.get(path, params=query)


async def kpis(front: Front, path: str = "") -> dict[str, Any]:
    front.clock.advance(2)  # a look is shared for a second
    answer = await get(front, f"/api/v1/kpis{path}")
    assert answer.status_code == 200
    return dict(answer.json())


async def sample(front: Front) -> None:
    leader = Leader(front.centre.store, "node-1", front.clock)
    await leader.campaign()
    await Sampler(front.centre.store, front.clock, leader, Thresholds()).sweep()


@pytest.mark.req("CMD-06", "CMD-07")
async def test_kpis_are_available_at_any_time(front: Front) -> None:
    """Before anything was sent, while it waits, and after it is done."""
    seen = []
    for step in (None, front.centre.send, front.centre.deliver):
        if step is not None:
            await step()  # type: ignore[operator]
        told, by_site = (await kpis(front))["kpis"], (await kpis(front, "/sites"))["sites"]
        of_site = {one["site"]: one["kpis"]["queue_depth"] for one in by_site}
        seen.append((told["queue_depth"], told["parked"], of_site.get(SITE, 0)))
    assert seen == [(0, 0, 0), (1, 0, 1), (0, 1, 0)], "there is no list yet, so it parks"


@pytest.mark.req("KPI-01", "TOP-04", "CMD-06", "CMD-07")
async def test_kpis_are_shown_for_all_sites_and_for_each(front: Front) -> None:
    await front.park()
    await front.park(site="north")
    await front.deliver()
    await front.centre.send(site="north")
    told = await kpis(front)
    assert list(told["kpis"]) == list(NAMES)
    assert (told["kpis"]["queue_depth"], told["kpis"]["parked"], told["kpis"]["delivered_last_interval"]) == (1, 2, 1)
    assert told["thresholds"] == {"stuck_after_s": 600, "overdue_after_s": 20, "delivered_window_s": 60}
    assert told["as_of"] == to_text(front.clock.now())
    by_site = {one["site"]: one["kpis"] for one in (await kpis(front, "/sites"))["sites"]}
    assert sorted(by_site) == ["north", SITE]
    assert (by_site["north"]["queue_depth"], by_site["north"]["parked"]) == (1, 1)
    assert (by_site[SITE]["queue_depth"], by_site[SITE]["parked"]) == (0, 1)


@pytest.mark.req("KPI-03", "KPI-07", "DEC-16", "TOP-04")
async def test_stuck_and_overdue_are_shown_and_change_nothing(front: Front) -> None:
    sent = await front.centre.send()
    before = await front.centre.get(sent)
    front.clock.advance(21)
    assert {name: (await kpis(front))["kpis"][name] for name in ("stuck", "overdue")} == {"stuck": 0, "overdue": 1}
    front.clock.advance(600)
    told = (await kpis(front))["kpis"]
    assert (told["stuck"], told["overdue"], told["oldest_pending_age_s"]) == (1, 1, 627)
    assert await front.centre.get(sent) == before
    young = await front.centre.send()
    async with front.client("viewer") as client:
        lines = (await client.get("/api/v1/notifications")).json()["notifications"]
        found = [
            [line["notification_id"] for line in (await client.get(path)).json()["notifications"]]
            for path in ("/api/v1/notifications?stuck=true", "/api/v1/notifications?overdue=true")
        ]
    assert [(line["notification_id"], line["is_stuck"]) for line in lines] == [(young, False), (sent, True)]
    assert found == [[sent], [sent]]


async def test_kpis_are_cached_briefly(front: Front) -> None:
    first = await kpis(front)
    await front.centre.send()
    answer = (await get(front, "/api/v1/kpis")).json()
    assert answer == first
    assert (await kpis(front))["kpis"]["queue_depth"] == 1


@pytest.mark.req("DEC-17")
async def test_history_has_a_kpi_of_all_sites_or_of_one(front: Front) -> None:
    begin = front.clock.now()
    await front.centre.send_many(2, site="north")
    await sample(front)
    front.clock.advance(60)
    await front.centre.send()
    await sample(front)
    front.clock.advance(60)
    told = (await get(front, "/api/v1/kpis/history", kpi="queue_depth")).json()
    assert [point["value"] for point in told["points"]] == [2, 3]
    assert told["points"][0]["at"] == to_text(begin)
    assert (told["kpi"], told["site"], told["step_s"]) == ("queue_depth", None, 60)
    assert (told["from"], told["to"]) == (to_text(front.clock.now() - timedelta(days=1)), to_text(front.clock.now()))
    of_one = (await get(front, "/api/v1/kpis/history", kpi="queue_depth", site="north")).json()
    assert [point["value"] for point in of_one["points"]] == [2, 2]
    later = {"from": to_text(begin + timedelta(seconds=30))}
    cut = (await get(front, "/api/v1/kpis/history", kpi="queue_depth", **later)).json()
    assert [point["value"] for point in cut["points"]] == [3]
    # An offset's plus, unescaped in a query, arrives as a space.
    zoned = {"to": "2026-01-01T09:00:30 01:00"}
    assert len((await get(front, "/api/v1/kpis/history", kpi="queue_depth", **zoned)).json()["points"]) == 1


async def test_long_history_has_fewer_points(front: Front) -> None:
    told = (await get(front, "/api/v1/kpis/history", kpi="stuck", **{"from": "2025-10-03T08:00:00Z"})).json()
    assert told["step_s"] == 90 * 24 * 3600 / 1500 // 60 * 60 + 60
    assert told["points"] == []


@pytest.mark.parametrize(
    ("query", "code", "field"),
    [
        ({}, "query.missing", "kpi"),
        ({"kpi": "speed"}, "kpi.unknown", "kpi"),
        ({"kpi": "stuck", "site": "a\0b"}, None, "site"),
        ({"kpi": "stuck", "from": "yesterday"}, "time.invalid", "from"),
        ({"kpi": "stuck", "from": "2026-01-01T00:00:00"}, "time.invalid", "from"),
        ({"kpi": "stuck", "to": "2026-13-01T00:00:00Z"}, "time.invalid", "to"),
        ({"kpi": "stuck", "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "history.range", "from"),
        ({"kpi": "stuck", "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "history.range", "from"),
        ({"kpi": "stuck", "from": "0001-01-01T00:00:00Z"}, "history.range", "from"),
        ({"kpi": "stuck", "to": "0001-01-01T00:00:00Z"}, "history.range", "to"),
        ({"kpi": "stuck", "step": "1"}, "query.unknown", "step"),
    ],
)
async def test_invalid_history_query_is_rejected_by_field(
    front: Front, query: dict[str, str], code: str | None, field: str
) -> None:
    answer = await get(front, "/api/v1/kpis/history", **query)
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert code in (None, answer.json()["code"])


@pytest.mark.req("DEC-06")
async def test_nodes_are_listed_with_their_state_and_the_leader(front: Front, clock: ManualClock) -> None:
    store = front.centre.store
    for name in ("stopped", "lost", "running"):
        await store.write(nodes.start, name, f"host-{name}", "1.2.3", now=store.now())
        clock.advance(1)
    await store.write(nodes.stop, "stopped", now=store.now())
    clock.advance(30)
    await store.write(nodes.beat, "running", now=store.now())
    await store.write(leases.take, leases.LEADER, "running", lease_s=15, now=store.now())
    told = (await get(front, "/api/v1/nodes")).json()
    assert [(node["node_id"], node["state"], node["is_leader"]) for node in told["nodes"]] == [
        ("running", "running", True),
        ("lost", "lost", False),
        ("stopped", "stopped", False),
    ]
    assert told["leader"] == "running"
    assert told["nodes"][0]["version"] == "1.2.3"
    clock.advance(15)
    assert (await get(front, "/api/v1/nodes")).json()["leader"] is None


def value(text: str, name: str) -> float:
    """Of this one line of the metrics."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not told in\n{text}"
    return float(found[1])


@pytest.mark.req("KPI-01", "TOP-04")
async def test_metrics_have_every_kpi_of_all_sites_and_of_each(front: Front) -> None:
    await front.park()
    await front.centre.send(site="north")
    front.clock.advance(30)
    answer = await get(front, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    text = answer.text
    for kpi in KPIS:
        name = kpi.name.removesuffix("_s") + "_seconds" if kpi.name.endswith("_s") else kpi.name
        assert value(text, f"fieldpost_{name}") >= 0
        for site in ("north", SITE):
            assert value(text, f'fieldpost_site_{name}{{site="{site}"}}') >= 0
    assert value(text, "fieldpost_queue_depth") == 1
    assert value(text, 'fieldpost_site_queue_depth{site="north"}') == 1
    assert value(text, f'fieldpost_site_parked{{site="{SITE}"}}') == 1
    assert value(text, "fieldpost_oldest_pending_age_seconds") == 30
    assert value(text, "fieldpost_store_up") == 1


async def test_metrics_have_leases_breakers_and_nodes(front: Front, clock: ManualClock) -> None:
    await front.deliver()
    store = front.centre.store
    front.centre.adapter.always["ops"] = Held("connection refused", phase="connect")
    await front.centre.send_many(5)
    await front.centre.deliver(slots=2, slots_per_key=1)
    await store.write(leases.take, leases.LEADER, "node-9", lease_s=15, now=store.now())
    await store.write(nodes.start, "node-9", "host", "1", now=store.now())
    clock.advance(5)
    text = (await get(front, "/metrics")).text
    assert value(text, 'fieldpost_lease_remaining_seconds{name="leader",owner="node-9"}') == 10
    assert value(text, 'fieldpost_breaker_state{breaker="channel:mail",state="open"}') == 1
    assert value(text, 'fieldpost_breaker_state{breaker="channel:mail",state="closed"}') == 0
    assert value(text, 'fieldpost_nodes{state="running"}') == 1


@pytest.mark.dec("DEC-52")
async def test_metrics_count_unhealthy_receivers_and_have_no_label_per_subscription(
    front: Front, clock: ManualClock
) -> None:
    hooks = Hooks(front.centre, clock)
    subscriptions = [await hooks.subscribe(name) for name in ("billing", "stock", "crm")]
    hooks.adapter.always |= {"billing": FAILED, "stock": FAILED}
    await hooks.publish(10)
    await hooks.centre.deliver()
    text = (await get(front, "/metrics")).text
    breakers = [await hooks.breaker(one) for one in subscriptions]
    for health in ("monitored", "blocked"):
        found = sum(breaker.health == health for breaker in breakers)
        assert value(text, f'fieldpost_unhealthy_receivers{{health="{health}"}}') == found
    assert {breaker.health for breaker in breakers} > {"healthy"}
    assert "webhooks_queue_depth" in text
    for one in subscriptions:
        assert one.subscription_id not in text
        assert f'"{one.name}"' not in text


async def test_metrics_count_accepted_claimed_and_attempted_notifications_of_this_node(front: Front) -> None:
    await front.deliver()
    front.centre.adapter.answer("ops", TransientFailure("451 later"))
    await front.centre.send()
    await front.centre.deliver()
    item = front.centre.item()
    for _ in range(2):
        await front.centre.submit(item)
    text = (await get(front, "/metrics")).text
    assert value(text, 'fieldpost_submitted_total{verdict="accepted"}') == 3
    assert value(text, 'fieldpost_submitted_total{verdict="duplicate"}') == 1
    assert value(text, 'fieldpost_claims_total{lane="fresh"}') == 2
    assert value(text, 'fieldpost_attempts_total{outcome="delivered",type="email"}') == 1
    assert value(text, 'fieldpost_attempts_total{outcome="transient_failure",type="email"}') == 1
    assert value(text, 'fieldpost_attempt_seconds_count{type="email"}') == 2
    assert value(text, "fieldpost_in_flight") == 0


async def test_metrics_contain_no_text_of_notifications(front: Front) -> None:
    await front.centre.send(subject="Hidden subject", body="Hidden body")
    assert "idden" not in (await get(front, "/metrics")).text


async def checks(front: Front) -> tuple[int, str, dict[str, str]]:
    answer = await get(front, "/readyz", caller=None)
    return (
        answer.status_code,
        answer.json()["status"],
        {check["name"]: check["status"] for check in answer.json()["checks"]},
    )


async def test_readiness_has_its_reasons(front: Front, clock: ManualClock) -> None:
    status, word, found = await checks(front)
    assert (status, word) == (200, "ready")
    # Only SQLite has a log of its own to watch.
    own = {"log": "ok"} if front.centre.store.log_bytes() is not None else {}
    assert found == {"store": "ok", "migrations": "ok", "dispatcher": "ok", "leader": "warning"} | own
    await Leader(front.centre.store, "node-1", clock).campaign()
    assert (await checks(front))[2]["leader"] == "ok"


async def test_a_node_whose_dispatcher_is_silent_is_not_ready(front: Front, clock: ManualClock) -> None:
    clock.advance(30)
    assert (await checks(front))[:2] == (200, "ready")
    clock.advance(1)
    status, word, found = await checks(front)
    assert (status, word, found["dispatcher"], found["store"]) == (503, "not_ready", "failing", "ok")
    front.centre.metrics.swept(0.01)
    assert (await checks(front))[:2] == (200, "ready")


async def test_schema_of_another_version_is_reported(front: Front) -> None:
    await front.centre.execute("update alembic_version set version_num = 'm9999'")
    assert (await checks(front))[2]["migrations"] == "warning"
    await front.centre.execute("update alembic_version set version_num = '0001'")
    status, _, found = await checks(front)
    assert (status, found["migrations"]) == (503, "failing")


@pytest.mark.threat(27)
async def test_anonymous_caller_sees_neither_driver_nor_message_nor_node(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "asyncpg: could not connect to 10.0.0.7 port 5432, node 0198c8a0"

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("store.unavailable", f"the central store is unavailable: {secret}", hint=secret)

    await Leader(front.centre.store, "node-0198c8a0", front.clock).campaign()
    for caller, is_told in ((None, False), ("viewer", True)):
        answer = await get(front, "/readyz", caller=caller)
        assert ("node-0198c8a0" in answer.text) is is_told
    assert "node-0198c8a0" not in (await get(front, "/readyz", caller="site")).text, "a site's token is not enough"
    for name in ("read", "read_one", "write", "write_one"):
        monkeypatch.setattr(front.centre.store, name, fail)
    async with front.client("viewer") as client:
        client.cookies.set("fieldpost-session", "fp_session_aaaaaaaaaaaa_" + "b" * 43)
        for path in ("/readyz", "/api/v1/me", "/api/v1/notifications", "/", "/login", "/link/v1/status/x"):
            for accept in ("text/html", "application/json"):
                answer = await client.get(path, headers={"Accept": accept})
                for word in ("asyncpg", "10.0.0.7", "5432", "0198c8a0"):
                    assert word not in answer.text, path
        refused = await client.get("/api/v1/me")
        assert (refused.status_code, refused.json()["code"]) == (503, "store.unavailable")
        assert refused.json()["detail"] == "the store of central is not available"
