"""Looking at what is due: which rows a claim may take, and when there will be more.

Theory of operation. A look walks the delivery keys that have live rows (one index probe each) and takes at most the
free slots of each, so that two hundred thousand rows of one saturated key cost the others nothing. The walk starts
behind the last key served, so that no key starves. Rows held behind a breaker are in another index and never seen here,
except by `find_probe`.

A row whose claim ran out is an orphan. A row orphaned twice is a suspect: the ordinary look leaves it alone, and
`find_lone` takes it when the node does nothing else.

On PostgreSQL plans are kept for any size of the tables (see `engine.py`), so each of these statements is written such
that only its own index fits: it says the index's condition in the index's own words, and says of the status nothing
that another partial index could be proven from, whatever the planner believes of the tables that moment.
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
"""Free to be taken since before a moment, by the rule in `core.kpi`: a lease that ran out lately counts as the row's
coming free. Its arrival is told such that no database takes the index on arrivals for the way to these rows."""

# An expired lease is an orphan not yet counted; two make a suspect.
ORPHANS = "(orphan_count + case when lease_until is null then 0 else 1 end)"
# The time is asked for once, which keeps it fit for an index: a clock that may tell another time for every row is not.
_MOMENT = "moment as (select {now} as at)"
_NOW = "(select at from moment)"
_NOT_CLAIMED = f"(lease_until is null or lease_until <= {_NOW})"
_IN_LANE = f"{IS_CLAIMABLE} and status = :status"
# What the node itself still works on is not taken again: neither when its lease ran out by a step of the clock, nor
# when another node has taken it over since and is done with it.
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
"""Which rows a claim takes on PostgreSQL, locked; it stands behind WALK, and both in the statement that takes them."""
# SQLite has no lateral join and no column in a limit: each key gives its ids as one text, and what is over a key's
# share is left out afterwards. Keys are walked only until there are enough.
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

# That it is not held is said so that only the small index of suspects fits.
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

# The earliest due row of each key, walked like a claim; rows in somebody's hands are not waited for.
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
    """What WALK and DUE are to look for: at most so many rows of the lane, of a key no more than its share less those
    of it that are busy."""
    given: dict[str, Any] = {"status": lane.status.value, "after": after, "per_key": per_key, "limit": limit}
    return given | {"busy": json.dumps(busy), "mine": mine}


def find_due(conn: Connection, given: Mapping[str, Any], busy: Mapping[str, int], *, now: datetime | None) -> list[str]:
    """The same on SQLite, where rows are taken by another statement than the one that finds them."""
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
    """When the next row that nobody holds is due; in the past where it is due already."""
    found = [_next_due.run(conn, status=lane.status.value, after="", now=now)[0].due_at for lane in Lane]
    return min((due_at for due_at in found if due_at is not None), default=None)
