"""Looking through the audit log: every filter finds what its rule says, in pages, and no look is long."""

import os
import random
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.notifications import audit
from fieldpost.central.store.search import audit_entries
from fieldpost.central.store.search.audit_entries import SCAN_MAX, find
from fieldpost.core.audit import AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.ids import new_ids
from fieldpost.core.search.audit_filter import AuditFilter
from fieldpost.core.search.page_key import PageKey
from fieldpost.testing import ManualClock
from support.centre import Centre
from support.plans import plans_of

MANY = 8_000
SITES, ACTORS, TARGETS = ("plant-7", "plant-8", None), ("system", "anna", "pump.py"), ("ops", "night", None)


def some_entries(clock: ManualClock, count: int, rng: random.Random) -> list[AuditEntry]:
    """Entries of all kinds; many share their moment."""
    ids = new_ids(clock.now(), os.urandom(10 * (count + 5)))
    about, event_ids = ids[:5], ids[5:]
    rng.shuffle(event_ids)
    return [
        AuditEntry(
            event_id=event_id,
            occurred_at=clock.now() + timedelta(seconds=rng.randrange(20)),
            kind=rng.choice([*AuditKind, AuditKind.NOTIFY_DELIVER, AuditKind.OPERATOR_ACTION]),
            status=rng.choice(list(AuditStatus)),
            actor=rng.choice(ACTORS),
            channel=rng.choice(list(AuditChannel)),
            correlation_id=rng.choice([*about, None]),
            source_site_id=rng.choice(SITES),
            target=rng.choice([*TARGETS, *about]),
            error_message="451 busy",
            extra={"count": 3},
        )
        for event_id in event_ids
    ]


def some_filter(clock: ManualClock, entries: list[AuditEntry], rng: random.Random) -> AuditFilter:
    def maybe(*values: Any) -> Any:
        return rng.choice(values) if rng.random() < 0.3 else None

    since, until = sorted(clock.now() + timedelta(seconds=rng.randrange(20)) for _ in range(2))
    return AuditFilter(
        since=maybe(since),
        until=maybe(until),
        kinds=tuple(rng.sample(list(AuditKind), rng.choice((1, 3)))) if rng.random() < 0.3 else (),
        statuses=tuple(rng.sample(list(AuditStatus), rng.choice((1, 3)))) if rng.random() < 0.3 else (),
        channel=maybe(*AuditChannel),
        actor=maybe(*ACTORS),
        target=maybe("ops", "night"),
        site=maybe("plant-7", "plant-8"),
        about=maybe(*{entry.correlation_id for entry in entries if entry.correlation_id}),
    )


def all_of(conn: Connection, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
    """Page after page, as whoever reads on gets them."""
    found: list[AuditEntry] = []
    before: PageKey | None = None
    while True:
        page = find(conn, wanted, limit=limit, before=before)
        found += page.entries
        if page.end is None:
            return found
        before = page.end


async def test_every_filter_finds_matching_entries_newest_first_in_pages_of_any_size(
    centre: Centre, clock: ManualClock
) -> None:
    rng = random.Random(20261115)
    entries = some_entries(clock, 400, rng)
    await centre.store.write(audit.add, entries)
    newest_first = sorted(entries, key=lambda entry: (entry.occurred_at, entry.event_id), reverse=True)

    def check(conn: Connection) -> set[str]:
        ways = set()
        for number in range(150):
            wanted = some_filter(clock, entries, rng) if number else AuditFilter()
            ways.add(audit_entries._way(wanted))
            expected = [entry for entry in newest_first if wanted.fits(entry)]
            assert all_of(conn, wanted, rng.choice((1, 7, 50, 500))) == expected, wanted
        return ways

    assert await centre.store.read(check) == set(audit_entries._WAYS), "every way was gone"


@pytest.mark.bad_input(45)
async def test_sql_wildcards_are_searched_literally(centre: Centre, clock: ManualClock) -> None:
    [entry] = some_entries(clock, 1, random.Random(1))
    odd = replace(entry, kind=AuditKind.OPERATOR_ACTION, actor="%_'; drop table audit --")
    await centre.store.write(audit.add, [odd])
    assert await centre.store.read(all_of, AuditFilter.parse({"actor": odd.actor}), 5) == [odd]
    assert await centre.store.read(all_of, AuditFilter.parse({"actor": "%"}), 5) == []


@pytest.fixture
async def grown(centre: Centre) -> Centre:
    """Many deliveries that went well, and few other entries, older than all of them."""
    await centre.store.write(_fill)
    await centre.execute("analyze")
    return centre


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({}, "ix_audit_occurred_at"),
        ({"site": "rare"}, "ix_audit_site"),
        ({"kind": "operator_action"}, "ix_audit_action"),
        ({"actor": "anna"}, "ix_audit_action_actor"),
        ({"target": "ops"}, "ix_audit_action_target"),
        ({"status": "parked"}, "ix_audit_failure"),
        ({"about": "01936f3e-7f7c-7000-8000-000000000001"}, "ix_audit_correlation_id"),
    ],
)
async def test_rare_entries_are_found_by_a_matching_index(grown: Centre, asked: dict[str, str], index: str) -> None:
    found = await grown.store.read(partial(find, limit=50), AuditFilter.parse(asked))
    assert len(found.entries) == (50 if not asked else 3)
    assert (found.end is None) is bool(asked), "all of it in one look"
    first, *_ = await grown.store.write(plans_of, partial(find, wanted=AuditFilter.parse(asked), limit=50), "audit")
    assert index in first
    assert "Seq Scan" not in first
    assert "SCAN audit\n" not in first + "\n"


async def test_search_without_an_index_runs_in_pieces(grown: Centre) -> None:
    """Each look has an end; whoever goes on from there finds it."""
    wanted = AuditFilter.parse({"kind": "notify_send", "actor": "nobody.py"})
    first = await grown.store.read(partial(find, limit=50), wanted)
    assert first.entries == ()
    assert first.end is not None
    second = await grown.store.read(partial(find, limit=50, before=first.end), wanted)
    assert MANY < 2 * SCAN_MAX
    assert second.end is None


def _fill(conn: Connection) -> None:
    numbers = (
        f"generate_series(1, {MANY}) as numbers(n)"
        if conn.dialect.name == "postgresql"
        else f"(with recursive r(n) as (select 1 union all select n + 1 from r where n < {MANY}) select n from r) as q"
    )
    is_postgresql = conn.dialect.name == "postgresql"
    at = "timestamptz '2026-01-01Z' + n * interval '1 second'" if is_postgresql else "1767225600000000 + n * 1000000"
    event = "'{}-0000-7000-8000-' || " + ("lpad(to_hex(n), 12, '0')" if is_postgresql else "lower(printf('%012x', n))")
    for mark, count, kind, status, actor, target, site, about in (
        ("00000000", MANY, "notify_deliver", "delivered", "system", "ops", "plant-7", None),
        ("00000001", 3, "operator_action", "submitted", "anna", "ops", None, None),
        ("00000002", 3, "notify_deliver", "parked", "system", "ops", "rare", "01936f3e-7f7c-7000-8000-000000000001"),
    ):
        when = at if count == MANY else ("timestamptz '2025-12-31Z'" if is_postgresql else "1767139200000000")
        id_ = event.format(mark)
        values = [kind, status, actor, target, site, about]
        told = ", ".join("null" if one is None else f"'{one}'" for one in values[:5])
        told += ", " + ("null" if about is None else f"'{about}'") + ("::uuid" if is_postgresql else "")
        conn.exec_driver_sql(
            "insert into audit (event_id, occurred_at, ingested_at, channel, kind, status, actor, target,"
            f" source_site_id, correlation_id) select {f'cast({id_} as uuid)' if is_postgresql else id_}, {when},"
            f" {when}, 'notification', {told} from {numbers} where n <= {count}"
        )
