"""The KPIs' SQL against their formulas, on random tables in both databases.

Times are drawn from around every threshold, the threshold itself and a microsecond to either side included, so that a
`<` that should be a `<=` is found.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.figures import kpis
from fieldpost.central.store.schema.notification_tables import notifications
from fieldpost.central.store.schema.search_tables import search_backlog
from fieldpost.central.store.schema.site_tables import cached_calls
from fieldpost.central.store.search import notifications as notification_search
from fieldpost.central.store.search import terms
from fieldpost.central.store.sites import sites
from fieldpost.core import kpi
from fieldpost.core.ids import new_id
from fieldpost.core.kpi import KPIS, NOTHING, KpiCall, KpiRow, Thresholds
from fieldpost.core.notification import NotificationKind, Status
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.sites.message import CallStatus

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
BY = Thresholds(timedelta(minutes=10), timedelta(seconds=20), timedelta(minutes=1))
SITES = ("north", "south", "plant-7")
IDLE = "idle"
ROWS = 1000


@pytest.mark.req("KPI-01", "KPI-02", "KPI-03", "KPI-04", "KPI-05", "KPI-06", "DEC-16", "DEC-52", "TBL-16")
@pytest.mark.parametrize("seed", range(6))
async def test_sql_of_every_kpi_equals_its_formula(store_url: str, seed: int) -> None:
    rng = random.Random(seed)
    made = [random_row(rng) for _ in range(ROWS)]
    calls = [random_call(rng) for _ in range(ROWS)]
    store = open_store(store_url)
    try:
        await store.write(fill, rng, made, calls)
        found = await store.read(kpis.snapshot, BY, now=NOW)
    finally:
        await store.close()
    expected = kpi.compute_by_site(made, NOW, BY, calls)
    assert found.as_of == NOW
    assert dict(found.of_sites) == {IDLE: NOTHING} | expected
    assert found.total == kpi.compute(made, NOW, BY, calls)
    for one in KPIS:
        assert found.total[one.name] > 0, f"the random table says nothing about {one.name}"


@pytest.mark.req("KPI-03", "KPI-12", "DEC-16", "DEC-52")
@pytest.mark.parametrize("are_many", [False, True], ids=["few", "many"])
@pytest.mark.parametrize("seed", range(3))
async def test_the_filters_stuck_and_overdue_find_the_rows_that_their_kpis_count(
    store_url: str, seed: int, are_many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all sites and of each, in pages; also where so many are overdue that not each of them is looked at."""
    if are_many:
        monkeypatch.setattr(notification_search, "FEW", 5)
        monkeypatch.setattr(notification_search, "SCAN_MAX", 40)
    rng = random.Random(seed)
    made = [random_row(rng) for _ in range(ROWS)]
    store = open_store(store_url)
    try:
        await store.write(fill, rng, made, [random_call(rng)])
        await store.write(index)
        counted = await store.read(kpis.snapshot, BY, now=NOW)
        for name, wanted in (("stuck", Filter(is_stuck=True)), ("overdue", Filter(is_overdue=True))):
            for kind in (None, *NotificationKind):
                of_kind = replace(wanted, kind=kind)
                assert await store.read(count_found, of_kind) == kpi.of_kind(counted.total, kind)[name] > 0
                for site, figures in counted.of_sites.items():
                    found = await store.read(count_found, replace(of_kind, site=site))
                    assert found == kpi.of_kind(figures, kind)[name], (name, kind, site)
    finally:
        await store.close()


def count_found(conn: Connection, wanted: Filter) -> int:
    """How many rows its pages show together, each of them once."""
    resolved = wanted.resolved(NOW, BY)
    assert resolved is not None
    seen: list[str] = []
    page = notification_search.find(conn, resolved, limit=7)
    seen += [n.notification_id for n in page.notifications]
    while page.end is not None:
        page = notification_search.find(conn, resolved, limit=7, before=page.end)
        seen += [n.notification_id for n in page.notifications]
    assert len(seen) == len(set(seen))
    return len(seen)


async def test_kpis_of_an_empty_table_are_zero(store_url: str) -> None:
    store = open_store(store_url)
    try:
        found = await store.read(kpis.snapshot, BY, now=NOW)
    finally:
        await store.close()
    assert (dict(found.of_sites), found.total) == ({}, NOTHING)


def random_row(rng: random.Random) -> KpiRow:
    status = rng.choice(list(Status))
    is_live = not status.is_terminal
    is_limited = rng.random() < 0.1
    return KpiRow(
        site=rng.choice(SITES),
        status=status,
        created_at=(created_at := around(rng, BY.stuck_after)),
        cycle_started_at=max(created_at, around(rng, BY.stuck_after)),
        due_at=around(rng, BY.overdue_after) if is_live else None,
        is_held=is_live and (is_limited or rng.random() < 0.2),
        is_limited=is_live and is_limited,
        lease_until=around(rng, BY.overdue_after) if is_live and rng.random() < 0.4 else None,
        delivered_at=around(rng, BY.delivered_window) if status is Status.DELIVERED else None,
        type=rng.choice(["email", "webhook"]),
    )


def random_call(rng: random.Random) -> KpiCall:
    status = rng.choice(list(CallStatus))
    return KpiCall(
        site=rng.choice(SITES),
        status=status,
        begun_at=around(rng, BY.stuck_after),
        ended_at=around(rng, BY.delivered_window) if status.is_terminal else None,
        is_gone=not status.is_terminal and rng.random() < 0.2,
    )


def around(rng: random.Random, age: timedelta) -> datetime:
    """A time near so long ago, near now, or anywhere between long ago and soon."""
    nearly = timedelta(microseconds=rng.choice([-1, 0, 1]))
    return NOW - rng.choice([age + nearly, nearly, timedelta(seconds=rng.uniform(-60, 4 * age.total_seconds()))])


def fill(conn: Connection, rng: random.Random, made: list[KpiRow], calls: list[KpiCall]) -> None:
    for site in (*SITES, IDLE):
        sites.add(conn, site, NOW)
    conn.execute(insert(notifications), list(rows_of(rng, made)))
    conn.execute(insert(cached_calls), [call_row(rng, call) for call in calls])


def index(conn: Connection) -> None:
    """As the leading node does behind the arrivals: only so are rows found by their site."""
    arrived = conn.execute(select(notifications.c.notification_id, notifications.c.created_at)).all()
    batches = [{"notification_id": row[0], "created_at": row[1], "count": 1} for row in arrived]
    conn.execute(insert(search_backlog), list({batch["created_at"]: batch for batch in batches}.values()))
    sweep = 1
    while terms.index(conn, ROWS, sweep):
        sweep += 1


def call_row(rng: random.Random, call: KpiCall) -> dict[str, Any]:
    return {
        "site": call.site,
        "call_id": new_id(NOW, rng.randbytes(10)),
        "incarnation": "first",
        "category": rng.choice(["external_call", "database_write"]),
        "target_summary": "erp POST /orders",
        "status": call.status.value,
        "retry_count": 0,
        "version": 1,
        "round": 1,
        "first_seen_at": NOW,
        "received_at": NOW,
        "begun_at": call.begun_at,
        "ended_at": call.ended_at,
        "gone_at": NOW if call.is_gone else None,
    }


def rows_of(rng: random.Random, made: list[KpiRow]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(made):
        has_error = row.status in (Status.RETRYING, Status.PARKED)
        ended_at = row.delivered_at or around(rng, BY.delivered_window)
        yield {
            "notification_id": new_id(NOW, rng.randbytes(10)),
            "type": row.type,
            "list_name": f"list-{number % 7}",
            "subject": "Pump 3 stopped",
            "body": "",
            "status": row.status.value,
            "last_error": "451 later" if has_error else None,
            "source_site_id": row.site,
            "created_at": row.created_at,
            "next_attempt_at": row.due_at if row.status is Status.RETRYING else None,
            "delivered_at": row.delivered_at,
            "terminal_at": ended_at if row.status.is_terminal else None,
            "due_at": row.due_at,
            "delivery_key": f"list:list-{number % 7}",
            "held_by": "rate:list:ops" if row.is_limited else "channel:mail" if row.is_held else None,
            "claim_owner": "node" if row.lease_until else None,
            "lease_until": row.lease_until,
            "cycle_started_at": row.cycle_started_at,
            "digest": b"",
        }
