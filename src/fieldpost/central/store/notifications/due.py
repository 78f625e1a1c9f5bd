"""Due rows: which rows a claim may take, and when there will be more.

Theory of operation. A claim walks the delivery keys that have claimable rows (one index probe each) and takes at most
the free slots of each, so that two hundred thousand rows of one saturated key cost the others nothing. The walk starts
behind the last key served, so that no key starves. Timed rows, which wait for a time, are in another index and become
claimable in sets (`promote`). Rows held behind a breaker are in a third index; only `find_probes` reads it.

A row whose claim expired is an orphan. A row orphaned twice is a suspect: ordinary claims skip it, and `find_lone`
takes it when the node does nothing else.

On PostgreSQL plans are kept for any size of the tables (ADR 0022), so each statement is written such that only its own
index fits: it repeats the index's condition literally, and contains no condition on the status from which the planner
could prove another partial index.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_CLAIMABLE, IS_FREE, IS_SUSPECT, IS_TIMED
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.delivery.routing import SlotPool


@dataclass(frozen=True, slots=True)
class NextWork:
    """The claimable work."""

    waiting: Mapping[SlotPool, Sequence[Lane]] = field(default_factory=dict)
    """The lanes with claimable rows, of the pools that have any. Their keys may have no free slot."""
    timed_due: datetime | None = None
    """When the next row will become claimable by its time."""


def _end(prefix: str) -> str:
    """The first text behind every delivery key with this prefix: keys are compared byte by byte."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


IS_OVERDUE = f"""due_at < :overdue_before and (created_at <= due_at or created_at < :overdue_before)
    and {IS_FREE} and (lease_until is null or lease_until < :overdue_before)"""
"""Claimable or timed since before a moment, by the rule in `core.kpi`: the end of an expired lease counts as the start.
The condition on the arrival is written such that no database picks the index on arrivals."""

# An expired lease is an orphan that is not counted yet; two orphans make a suspect.
ORPHANS = "(orphan_count + case when lease_until is null then 0 else 1 end)"
# One time for the whole statement: an index cannot be used with a clock that may differ from row to row.
_MOMENT = "moment as (select {now} as at)"
_NOW = "(select at from moment)"
_NOT_CLAIMED = f"(lease_until is null or lease_until <= {_NOW})"
_IN_LANE = f"{IS_CLAIMABLE} and status = :status"
# A node does not take its own running attempts again: neither when their lease expired by a step of the clock, nor
# when another node has taken over the row and finished with it.
_NOT_MINE = "not notification_id {any:mine}"

WALK = f"""
    with recursive {_MOMENT},
    forward as (
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key > :after and delivery_key < :end order by delivery_key limit 1) as k
        union all
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key > forward.k and delivery_key < :end order by delivery_key limit 1)
        from forward where forward.k is not null
    ),
    wrapped as (
        select (select delivery_key from notifications where {_IN_LANE}
                and delivery_key >= :begin and delivery_key <= :after order by delivery_key limit 1) as k
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
"""The rows that a claim takes on PostgreSQL, locked; it follows WALK in the statement that takes them."""
# SQLite has no lateral join and no column in a limit: each key returns its ids as one text, and ids beyond a key's
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

LONE_WAIT_S = 10
"""How long a row whose lone attempt ended with its node waits for the next one, so that the others are served first. It
doubles with each such end, up to LONE_WAIT_DOUBLED times."""
LONE_WAIT_DOUBLED = 8
# The condition on the hold is written such that only the small index of suspects fits.
_IS_FREE_SUSPECT = f"""
    {IS_SUSPECT} and {ORPHANS} >= 2 and coalesce(held_by, '') = '' and due_at <= {_NOW} and {_NOT_CLAIMED}
    and ({ORPHANS} = 2 or lease_until is null or {{waited_until}} <= {_NOW})
"""
_DOUBLED = f"least({ORPHANS} - 3, {LONE_WAIT_DOUBLED})"
_IS_FREE_SUSPECT_POSTGRESQL = _IS_FREE_SUSPECT.format(
    waited_until=f"lease_until + make_interval(secs => {LONE_WAIT_S} * power(2, {_DOUBLED}))"
)
_IS_FREE_SUSPECT_SQLITE = _IS_FREE_SUSPECT.format(
    waited_until=f"lease_until + {LONE_WAIT_S} * 1000000 * (1 << {_DOUBLED.replace('least', 'min')})"
)
_LONE = f"with {_MOMENT} select notification_id, delivery_key from notifications where"
_lone = Statement(
    f"{_LONE} {_IS_FREE_SUSPECT_POSTGRESQL} order by due_at limit 1 {{locked}}",
    sqlite=f"{_LONE} {_IS_FREE_SUSPECT_SQLITE} order by due_at limit 1",
    result=_FOUND,
)
_suspects = Statement(
    f"{_LONE} {_IS_FREE_SUSPECT_POSTGRESQL} order by due_at limit 1",
    sqlite=f"{_LONE} {_IS_FREE_SUSPECT_SQLITE} order by due_at limit 1",
    result=_FOUND,
)

_HELD_FREE = f"held_by = {{key}} and not is_timed and {_NOT_CLAIMED} and {ORPHANS} < 2 and {_NOT_MINE}"
# The next delivery key with rows behind the breaker, in order and then from the start.
_holds_of = Statement(
    "select held_by from notifications where notification_id {any:ids}", lists={"ids": "id"}, result={"held_by": Text}
)
_OF_BREAKER = "select h.delivery_key from notifications h where h.held_by = u.key and not h.is_timed"
_NEXT_KEY = f"""coalesce(
    ({_OF_BREAKER} and h.delivery_key > u.after order by h.delivery_key limit 1),
    ({_OF_BREAKER} order by h.delivery_key limit 1)
)"""
_probes_of_next_key = Statement(
    f"""
    with {_MOMENT}, wanted as materialized (select u.key, {_NEXT_KEY} as next_key from {{rows}})
    select held.notification_id, held.delivery_key from wanted
    cross join lateral (
        select notification_id, delivery_key from notifications
        where {_HELD_FREE.replace("{key}", "wanted.key")} and delivery_key = wanted.next_key
        order by due_at limit 1 for update skip locked
    ) as held
    """,
    sqlite=f"""
    with {_MOMENT}, wanted as materialized (select u.key, {_NEXT_KEY} as next_key from {{rows}})
    select (
        select notification_id from notifications
        where {_HELD_FREE.replace("{key}", "wanted.key")} and delivery_key = wanted.next_key
        order by due_at limit 1
    ) as notification_id, wanted.key as delivery_key
    from wanted
    """,
    rows={"key": "text", "after": "text"},
    lists={"mine": "id"},
    result=_FOUND,
)
_probes = Statement(
    f"""
    with {_MOMENT}
    select held.notification_id, held.delivery_key from unnest(cast(:keys as text[])) as keys(k)
    cross join lateral (
        select notification_id, delivery_key from notifications where {_HELD_FREE.replace("{key}", "keys.k")}
        order by due_at limit 1 for update skip locked
    ) as held
    """,
    sqlite=f"""
    with {_MOMENT}
    select (
        select notification_id from notifications where {_HELD_FREE.replace("{key}", "keys.value")}
        order by due_at limit 1
    ) as notification_id, '' as delivery_key
    from json_each(:keys) as keys
    """,
    lists={"mine": "id", "keys": "text"},
    result=_FOUND,
)

# One row per pool and lane. Claimed rows keep their place in the index, so a search may pass some of these.
_next_work = Statement(
    f"""
    with {_MOMENT}
    select (select due_at from notifications where {IS_TIMED} and due_at is not null order by due_at limit 1)
        as timed_due, {
        ", ".join(
            f'''(
        select 1 from notifications where {IS_CLAIMABLE} and status = :{lane} and {_NOT_CLAIMED} and {ORPHANS} < 2
            and delivery_key >= :{pool} and delivery_key < :{pool}_end order by delivery_key, due_at limit 1
    ) as {pool}_{lane}'''
            for pool in SlotPool
            for lane in Lane
        )
    }
    """,
    result={"timed_due": Moment},
)
_BOUNDS = {lane.value: lane.status.value for lane in Lane} | {
    name: bound
    for pool in SlotPool
    for name, bound in ((pool.value, pool.prefix), (f"{pool.value}_end", _end(pool.prefix)))
}
# One index probe per key: written as EXISTS it may become a join that reads every claimable row.
_ONE_WAITING = f"""
    select 1 as one from notifications n where {IS_CLAIMABLE} and status = :status and n.delivery_key = {{key}}
        and due_at <= {_NOW} and {_NOT_CLAIMED} and {ORPHANS} < 2 and {_NOT_MINE}
    order by due_at limit 1
"""
_waiting_keys = Statement(
    f"""
    with {_MOMENT}
    select keys.k as delivery_key from unnest(cast(:keys as text[])) as keys(k)
    cross join lateral ({_ONE_WAITING.replace("{key}", "keys.k")}) as waiting
    """,
    sqlite=f"""
    with {_MOMENT}
    select delivery_key from (
        select keys.value as delivery_key, ({_ONE_WAITING.replace("{key}", "keys.value")}) as one
        from json_each(:keys) as keys
    ) where one is not null
    """,
    lists={"mine": "id", "keys": "text"},
    result={"delivery_key": Text},
)
_of_one_key = Statement(
    f"""
    with {_MOMENT}
    select notification_id, delivery_key from notifications
    where {_IN_LANE} and delivery_key = :key and due_at <= {_NOW} and {_NOT_CLAIMED} and {ORPHANS} < 2 and {_NOT_MINE}
    order by due_at limit :limit {{locked}}
    """,
    lists={"mine": "id"},
    result=_FOUND,
)
_ready_keys = Statement(
    f"{WALK} select k as delivery_key from keys order by pass, k limit :limit", result={"delivery_key": Text}
)

# Timed rows become claimable in sets, by any node.
# Waiting for a rate limit does not age a row: its cycle starts again.
_PROMOTE = f"""
    with {_MOMENT}
    update notifications set is_timed = false, held_reason = null, held_by = null,
        cycle_started_at = case when held_by like 'rate_limit:%' then {_NOW} else cycle_started_at end,
        version = version + case when held_by is null then 0 else 1 end
    where notification_id
"""
_TO_PROMOTE = f"""
    select notification_id from notifications where {IS_TIMED} and due_at <= {_NOW}
    order by due_at limit :limit {{locked}}
"""
_promote = Statement(
    f"{_PROMOTE} = any(array({_TO_PROMOTE})) returning notification_id",
    sqlite=f"{_PROMOTE} in ({_TO_PROMOTE}) returning notification_id",
    result={"notification_id": Id},
)


def wanted(
    lane: Lane, *, limit: int, per_key: int, busy: Mapping[str, int], after: str, mine: Collection[str], prefix: str
) -> dict[str, Any]:
    """Parameters of WALK and DUE: rows of the lane in keys with this prefix, per key its share less its busy ones."""
    return {
        "status": lane.status.value,
        "after": after or prefix,
        "begin": prefix,
        "end": _end(prefix),
        "per_key": per_key,
        "limit": limit,
        "busy": json.dumps(busy),
        "mine": mine,
    }


def find_due(conn: Connection, given: Mapping[str, Any], busy: Mapping[str, int], *, now: datetime | None) -> list[str]:
    """The ids of due rows on SQLite, where another statement takes them."""
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


def find_probes(
    conn: Connection, breaker_keys: Mapping[str, str | None], *, mine: Collection[str], now: datetime | None
) -> list[str]:
    """One row held behind each of these breakers, where there is one, locked.

    A breaker comes with the delivery key of its last probe: the row is of the next one, if that has a free row.
    """
    after = sorted((key, last) for key, last in breaker_keys.items() if last is not None)
    found = list(_probes_of_next_key.run(conn, after, mine=mine, now=now)) if after else []
    ids = [row.notification_id for row in found if row.notification_id is not None]
    rest = breaker_keys.keys() - _held_by(conn, ids)
    found = list(_probes.run(conn, keys=sorted(rest), mine=mine, now=now)) if rest else []
    return ids + [row.notification_id for row in found if row.notification_id is not None]


def _held_by(conn: Connection, ids: Sequence[str]) -> set[str]:
    return {row.held_by for row in _holds_of.run(conn, ids=ids)} if ids else set()


def has_suspects(conn: Connection, *, now: datetime | None) -> bool:
    """Whether a suspect waits for its lone attempt."""
    return bool(_suspects.run(conn, now=now))


def next_work(conn: Connection, *, now: datetime | None) -> NextWork:
    """Where rows can be claimed now, and when the next timed row becomes claimable; a single statement."""
    (found,) = _next_work.run(conn, **_BOUNDS, now=now)
    waiting = {pool: [lane for lane in Lane if getattr(found, f"{pool}_{lane}")] for pool in SlotPool}
    return NextWork({pool: lanes for pool, lanes in waiting.items() if lanes}, found.timed_due)


def waiting_keys(
    conn: Connection, keys: Collection[str], lanes: Iterable[Lane], *, mine: Collection[str], now: datetime | None
) -> set[str]:
    """Those of these delivery keys that have due rows in these lanes without a claim."""
    found = (_waiting_keys.run(conn, keys=list(keys), mine=mine, status=lane.status.value, now=now) for lane in lanes)
    return {row.delivery_key for rows in found for row in rows}


def find_of_key(
    conn: Connection, lane: Lane, key: str, *, limit: int, mine: Collection[str], now: datetime | None
) -> list[str]:
    """Due rows of one delivery key, locked."""
    found = _of_one_key.run(conn, status=lane.status.value, key=key, limit=limit, mine=mine, now=now)
    return [row.notification_id for row in found]


def ready_keys(conn: Connection, prefix: str, after: str, limit: int, *, now: datetime | None) -> list[str]:
    """Delivery keys with claimable rows, after `after` and then from the start; claimed rows count too."""
    bounds = {"begin": prefix, "end": _end(prefix), "after": after or prefix}
    found = [
        row.delivery_key
        for lane in Lane
        for row in _ready_keys.run(conn, status=lane.status.value, **bounds, limit=limit, now=now)
    ]
    return list(dict.fromkeys(found))[:limit]


def promote(conn: Connection, limit: int, *, now: datetime | None) -> int:
    """Make timed rows claimable whose time has come, at most `limit`; how many."""
    return len(_promote.run(conn, limit=limit, now=now))
