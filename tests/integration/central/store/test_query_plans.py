"""The hot statements find their rows by their own small indexes, whatever the database knows of the tables."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.notifications import breakers, claims, due, records
from fieldpost.core.delivery.lanes import Lane
from support.centre import Centre
from support.plans import fill, plans_of, reads_of


def claim(conn: Connection, centre: Centre) -> Any:
    busy = {"list:many": 8}
    return claims.claim_due(
        conn, "a", Lane.FRESH, limit=20, per_key=8, busy=busy, after="list:few-2", lease_s=90, now=centre.store.now()
    )


def next_work(conn: Connection, centre: Centre) -> Any:
    return due.next_work(conn, now=centre.store.now())


def promote(conn: Connection, centre: Centre) -> Any:
    return due.promote(conn, 100, now=centre.store.now())


def has_suspects(conn: Connection, centre: Centre) -> Any:
    return due.has_suspects(conn, now=centre.store.now())


def claim_lone(conn: Connection, centre: Centre) -> Any:
    return claims.claim_lone(conn, "a", lease_s=90, now=centre.store.now())


def claim_probes(conn: Connection, centre: Centre) -> Any:
    return claims.claim_probes(conn, "a", {"channel:down": None}, lease_s=90, now=centre.store.now())


def held_keys(conn: Connection, centre: Centre) -> Any:
    return breakers.held_keys(conn)


def hold_rows(conn: Connection, centre: Centre) -> Any:
    until = datetime(2027, 1, 1, tzinfo=UTC)
    holds = [(key, "channel:other", "down", until) for key in ("list:few-1", "list:many")]
    return breakers.hold_rows(conn, holds, 20, now=centre.store.now())


def held_too_long(conn: Connection, centre: Centre) -> Any:
    return records.held_since_before(conn, datetime(2025, 12, 1, tzinfo=UTC), 200)


HOT = {
    claim: "ix_notifications_claim",
    next_work: "ix_notifications_claim",
    promote: "ix_notifications_timed",
    has_suspects: "ix_notifications_suspect",
    claim_lone: "ix_notifications_suspect",
    claim_probes: "ix_notifications_held",
    held_keys: "ix_notifications_held",
    hold_rows: "ix_notifications_claim",
    held_too_long: "ix_notifications_held_since",
}
READS_MAX = {"postgresql": 400, "sqlite": 20}
"""Rows, or thousands of steps; all rows are 40,000, or nearly 300."""


@pytest.fixture(params=["nothing known of the tables", "all known of the tables"])
async def filled(request: pytest.FixtureRequest, centre: Centre) -> Centre:
    """Many rows of one list, few of others, many held; fresh from one big insert, and as after an ANALYZE."""
    await centre.store.write(fill, "many", 20_000)
    for number in range(5):
        await centre.store.write(fill, f"few-{number}", 10)
    await centre.store.write(fill, "held", 20_000, held_by="channel:down")
    if request.param.startswith("all"):
        await centre.execute("analyze")
    return centre


@pytest.mark.req("DEC-08")
async def test_the_hot_statements_use_their_indexes_and_read_few_rows(filled: Centre) -> None:
    for work, index in HOT.items():
        plans = await filled.store.write(plans_of, partial(work, centre=filled))
        assert index in plans[0], f"{work.__name__}: {plans[0]}"
        for plan in plans:
            assert "Seq Scan on notifications" not in plan, f"{work.__name__}: {plan}"
            assert "SCAN notifications" not in plan, f"{work.__name__}: {plan}"
        reads = await filled.store.write(reads_of, partial(work, centre=filled))
        assert reads <= READS_MAX["postgresql" if filled.is_postgresql else "sqlite"], work.__name__


@pytest.mark.req("DEC-08")
async def test_a_plan_made_for_a_small_table_is_not_kept_for_a_large_one(centre: Centre) -> None:
    """The statements are prepared and run again and again while there is next to nothing to claim."""

    def claim_and_renew(conn: Connection) -> None:
        taken = [(one.notification.notification_id, one.token) for one in claim(conn, centre)]
        claims.renew(conn, "a", taken, lease_s=90, now=centre.store.now())
        claims.release(conn, "a", taken, "not now", now=centre.store.now())

    await centre.store.write(fill, "few", 100)
    for _ in range(10):
        await centre.store.write(claim_and_renew)
    await centre.store.write(fill, "many", 20_000)
    await centre.store.write(fill, "other", 100)
    reads = await centre.store.write(reads_of, claim_and_renew)
    assert reads <= READS_MAX["postgresql" if centre.is_postgresql else "sqlite"]
