"""On PostgreSQL a claim, and the ends of its attempt and targets, write to no index again (HOT updates)."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.notifications import claims, finishing
from fieldpost.central.store.notifications.attempts import Finished
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.ids import new_ids
from fieldpost.core.notification import Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import Centre, open_centre

COUNT = 5
"""Few enough that a page has room for both versions of each."""


@pytest.fixture
async def written(pg_url: str, clock: ManualClock) -> AsyncIterator[Centre]:
    async with open_centre(pg_url, clock) as centre:
        await centre.add_channel()
        await centre.add_list()
        await centre.send_many(COUNT)
        yield centre


def claim(conn: Connection, centre: Centre) -> list[Claimed]:
    given: dict[str, Any] = {"limit": COUNT, "per_key": COUNT, "busy": {}, "after": "", "lease_s": 90.0}
    return claims.claim_due(conn, "a", Lane.FRESH, **given, now=centre.store.now())


def reached(one: Claimed) -> tuple[Target, ...]:
    return tuple(Target(target.address, TargetStatus.DELIVERED) for target in one.notification.targets)


def updates_of(conn: Connection, table: str) -> tuple[int, int]:
    """How many rows this transaction has updated, and how many of them by a HOT update."""
    found = conn.exec_driver_sql(
        f"select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables where relname = '{table}'"
    )
    updated, hot = found.one()
    return updated, hot


@pytest.mark.req("DEC-07")
async def test_a_claim_touches_no_index(written: Centre) -> None:
    def work(conn: Connection) -> tuple[int, int]:
        assert len(claim(conn, written)) == COUNT
        return updates_of(conn, "notifications")

    assert await written.store.write(work) == (COUNT, COUNT)


@pytest.mark.req("DEC-07")
async def test_the_end_of_an_attempt_touches_no_index_of_attempts_and_targets(
    written: Centre, clock: ManualClock
) -> None:
    taken = await written.store.write(claim, written)
    ends = [
        Finished(
            one.notification.notification_id,
            one.token,
            lifecycle.delivered(one.notification, reached(one), clock.now()),
            "delivered",
            None,
            "dot",
            "250 ok",
            12,
            clock.now(),
        )
        for one in taken
    ]

    def work(conn: Connection) -> list[tuple[int, int]]:
        assert finishing.apply(conn, "a", ends, new_ids(clock.now(), os.urandom(20 * COUNT))) == set()
        return [updates_of(conn, table) for table in ("attempts", "targets")]

    assert await written.store.write(work) == [(COUNT, COUNT)] * 2
