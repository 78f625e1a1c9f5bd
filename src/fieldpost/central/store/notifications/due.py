"""Due rows: which ones a claim may take, and when the next is due.

Theory of operation. The query walks the delivery keys that have live rows (one index probe each) and takes at most the
free slots of each key, so that two hundred thousand rows of one saturated key cost the other keys nothing. The walk
starts after the last key served, so that no key starves. Rows held behind a breaker are in another index; only
`find_probe` reads them.

A row whose claim expired is an orphan. A row orphaned twice is a suspect: the ordinary query skips it, and `find_lone`
takes it when the node does nothing else.

On PostgreSQL one plan serves tables of any size (see `postgres_store.py`), so each statement is written such that only
its own index fits: it repeats the condition of that index literally, and has no condition on the status from which the
planner could prove that another partial index applies.
"""

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_CLAIMABLE, IS_SUSPECT
from fieldpost.core.lanes import Lane

IS_OVERDUE = f"""due_at < :overdue_before and (created_at <= due_at or created_at < :overdue_before)
    and {IS_CLAIMABLE} and (lease_until is null or lease_until < :overdue_before)"""
"""Claimable since before a time, by the rule in `core.kpi`: a row whose lease expired became claimable then. The
condition on the arrival is written such that no planner uses the index on arrivals for it."""

# An expired lease is an orphan not yet counted; two make a suspect.
ORPHANS = "(orphan_count + case when lease_until is null then 0 else 1 end)"
# The time is read once: an index condition needs a constant, which clock_timestamp() is not.
_MOMENT = "moment as (select {now} as at)"
_NOW = "(select at from moment)"
_NOT_CLAIMED = f"(lease_until is null or lease_until <= {_NOW})"
_IN_LANE = f"{IS_CLAIMABLE} and status = :status"
# A node does not take a row again that it still works on: neither when the lease expired by a step of the clock, nor
# when another node has taken the row over and finished it.
_NOT_MINE = "not notification_id {any:mine}"

WALK = f"""
    with recursive {_MOMENT},
    forward as (
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key > :after order by delivery_key limit 1) as k
        union all
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key > forward.k order by delivery_key limit 1)
        from forward where forward.k is not null
    ),
    wrapped as (
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key <= :after order by delivery_key limit 1) as k
        union all
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key > wrapped.k and delivery_key <= :after order by delivery_key limit 1)
        from wrapped where wrapped.k is not null
    ),
    keys as (select k, 1 as pass from forward where k is not null
             union all select k, 2 from wrapped where k is not null)
"""
_OF_KEY = f"""
    {_IN_LANE} and delivery_key = keys.k and due_at <= {_NOW} and {_NOT_CLAIMED} and {ORPHANS} < 2 and {_NOT_MINE}
    order by due_at
"""
_FOUND = {"notification_id": Id, "delivery_key": Text}

DUE = f"""
    select due.notification_id, keys.k as delivery_key
    from keys
    cross join lateral (
        select notification_id from notifications where {_OF_KEY}
        limit greatest(:per_key - coalesce(cast(cast(:busy as jsonb) ->> keys.k as bigint), 0), 0)
        for update skip locked
    ) as due
    limit :limit
"""
"""The rows that a claim takes on PostgreSQL, locked; follows WALK within the statement that takes them."""
# SQLite has no lateral join and no column in a limit: each key returns its ids as one text, and ids beyond the key's
# share are dropped afterwards. The walk ends when there are enough rows.
_due_sqlite = Statement(
    f"""{WALK}
    select ids as notification_id, k as delivery_key from (
        select keys.k, (
            select group_concat(notification_id) from (
                select notification_id from notifications where {_OF_KEY} limit :per_key
            )
        ) as ids
        from keys
    )
    where ids is not null
    """,
    lists={"mine": "id"},
    result=_FOUND,
)

# "Not held" is written such that only the small index of suspects fits.
_IS_FREE_SUSPECT = f"""
    {IS_SUSPECT} and {ORPHANS} >= 2 and coalesce(held_by, '') = '' and due_at <= {_NOW} and {_NOT_CLAIMED}
"""
_lone = Statement(
    f"""
    with {_MOMENT}
    select notification_id, delivery_key from notifications where {_IS_FREE_SUSPECT} order by due_at limit 1 {{locked}}
    """,
    result=_FOUND,
)
_suspects = Statement(
    f"with {_MOMENT} select 1 as found from notifications where {_IS_FREE_SUSPECT} order by due_at limit 1"
)

_probe = Statement(
    f"""
    with {_MOMENT}
    select notification_id, delivery_key from notifications
    where held_by = :breaker_key and {_NOT_CLAIMED} and {ORPHANS} < 2 and {_NOT_MINE}
    order by due_at limit 1 {{locked}}
    """,
    lists={"mine": "id"},
    result=_FOUND,
)

# The earliest due row of each key, walked like a claim; claimed rows do not count.
_next_due = Statement(
    f"""{WALK}
    select min((select due_at from notifications
                where {_IN_LANE} and delivery_key = keys.k and {_NOT_CLAIMED}
                order by due_at limit 1)) as due_at
    from keys
    """,
    result={"due_at": Moment},
)


def wanted(
    lane: Lane, *, limit: int, per_key: int, busy: Mapping[str, int], after: str, mine: Collection[str]
) -> dict[str, Any]:
    """The parameters of WALK and DUE: at most `limit` rows of the lane, and at most `per_key` of a key less its busy
    ones."""
    given: dict[str, Any] = {"status": lane.status.value, "after": after, "per_key": per_key, "limit": limit}
    return given | {"busy": json.dumps(busy), "mine": mine}


def find_due(conn: Connection, given: Mapping[str, Any], busy: Mapping[str, int], *, now: datetime | None) -> list[str]:
    """The due rows on SQLite, where one statement finds the rows and another takes them."""
    taken: list[str] = []
    with closing(_due_sqlite.each(conn, **given, now=now)) as found:
        for row in found:
            taken += row.notification_id.split(",")[: max(given["per_key"] - busy.get(row.delivery_key, 0), 0)]
            if len(taken) >= given["limit"]:
                break
    return taken[: given["limit"]]


def find_lone(conn: Connection, *, now: datetime | None) -> list[str]:
    """One suspect, locked."""
    return [row.notification_id for row in _lone.run(conn, now=now)]


def find_probe(conn: Connection, breaker_key: str, *, mine: Collection[str], now: datetime | None) -> list[str]:
    """One row that is held behind this breaker, locked."""
    return [row.notification_id for row in _probe.run(conn, breaker_key=breaker_key, mine=mine, now=now)]


def has_suspects(conn: Connection, *, now: datetime | None) -> bool:
    """Whether a row waits to be attempted alone."""
    return bool(_suspects.run(conn, now=now))


def next_due(conn: Connection, *, now: datetime | None) -> datetime | None:
    """When the next unclaimed row is due; in the past if it is due already."""
    found = [_next_due.run(conn, status=lane.status.value, after="", now=now)[0].due_at for lane in Lane]
    return min((due_at for due_at in found if due_at is not None), default=None)
