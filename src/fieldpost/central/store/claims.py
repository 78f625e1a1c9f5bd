"""Claims: a node's time-limited hold on rows that are due.

Theory of operation. A claim is taken in one short transaction: owner, token + 1, lease end by the database's clock, and
the attempt row ("started") beside it. Nothing is open while an adapter talks. A claim ends with `apply` (attempts.py)
or `release`; a crashed node's claims end when their lease runs out, and the next claim takes such rows like any other,
so no leader is needed. A token only ever grows: whoever holds an older one changes nothing.

A claim walks the delivery keys that have live rows (one index probe each) and takes at most the free slots of each, so
that two hundred thousand rows of one saturated key cost the others nothing. The walk starts behind the last key served,
so that no key starves. Rows held behind a breaker are in another index and never seen here, except by `claim_probe`.

A row whose claim ran out is an orphan. A row orphaned twice is a suspect: the ordinary claim leaves it alone, and
`claim_lone` takes it when the node does nothing else; only the orphan of a lone attempt is parked.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Row, Text

from fieldpost.central.store import rows as to_core
from fieldpost.central.store.rows import NOTIFICATION_COLUMNS, NOTIFICATION_TYPES
from fieldpost.central.store.statement import Kind, Statement, plan_anew
from fieldpost.central.store.tables import IS_CLAIMABLE
from fieldpost.central.store.types import Id, Moment
from fieldpost.core.lanes import Lane
from fieldpost.core.notification import Notification, Target


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row in this node's hands, until `lease_until` unless renewed."""

    notification: Notification
    token: int
    claimed_at: datetime
    """By the database's clock: with the monotonic time since, a node knows the database's time without asking."""
    is_lone: bool
    """To be attempted while the node does nothing else."""
    is_orphan_of_lone: bool
    """Its attempt alone on a node ended with that node: not to be attempted again."""


_NOT_CLAIMED = "(lease_until is null or lease_until <= {now})"
# An expired lease is an orphan not yet counted; two make a suspect.
_ORPHANS = "(orphan_count + case when lease_until is null then 0 else 1 end)"
# The partial index's own condition in its own words: with a parameter alone neither database knows that it may use it.
_IN_LANE = f"{IS_CLAIMABLE} and status = :status"
_FREE = f"held_by is null and due_at <= {{now}} and {_NOT_CLAIMED}"
# What the node itself still works on is not taken again: neither when its lease ran out by a step of the clock, nor
# when another node has taken it over since and is done with it.
_NOT_MINE = "not notification_id {any:mine}"

_walk = f"""
    with recursive
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

_BUSY: Mapping[str, Kind] = {"busy_key": "text", "busy_count": "int"}

_candidates = Statement(
    f"""{_walk}
    select due.notification_id, keys.k as delivery_key
    from keys
    left join {{rows}} on u.busy_key = keys.k
    cross join lateral (
        select notification_id from notifications
        where {_IN_LANE} and delivery_key = keys.k and {_FREE} and {_ORPHANS} < 2 and {_NOT_MINE}
        order by due_at
        limit greatest(:per_key - coalesce(u.busy_count, 0), 0)
        for update skip locked
    ) as due
    limit :limit
    """,
    # SQLite has no lateral join and no column in a limit: each key gives its ids as one text, and what is over a key's
    # share is left out afterwards, so the limit there is higher by the keys that may be busy.
    sqlite=f"""{_walk}
    select ids as notification_id, k as delivery_key from (
        select keys.k, (
            select group_concat(notification_id) from (
                select notification_id from notifications
                where {_IN_LANE} and delivery_key = keys.k and {_FREE} and {_ORPHANS} < 2 and {_NOT_MINE}
                order by due_at limit :per_key
            )
        ) as ids
        from keys
    )
    where ids is not null limit :limit + :wasted
    """,
    rows=_BUSY,
    lists={"mine": "id"},
    result={"notification_id": Id, "delivery_key": Text},
)

# That it is not held is said so that only the small index of suspects fits: by the large one of all claimable rows,
# which either database may think as good, every row would be looked at.
_IS_SUSPECT = f"""
    status in ('pending', 'retrying') and orphan_count > 0 and {_ORPHANS} >= 2
    and coalesce(held_by, '') = '' and due_at <= {{now}} and {_NOT_CLAIMED}
"""

_lone = Statement(
    f"""
    select notification_id, delivery_key from notifications where {_IS_SUSPECT} order by due_at limit 1 {{locked}}
    """,
    result={"notification_id": Id, "delivery_key": Text},
)

_probe = Statement(
    f"""
    select notification_id, delivery_key from notifications
    where held_by = :breaker_key and {_NOT_CLAIMED} and {_ORPHANS} < 2 and {_NOT_MINE}
    order by due_at limit 1 {{locked}}
    """,
    lists={"mine": "id"},
    result={"notification_id": Id, "delivery_key": Text},
)

_TAKE = f"""
    update notifications set
        claim_owner = :owner,
        claim_token = claim_token + 1,
        lease_until = {{now+lease_s}},
        orphan_count = {_ORPHANS}
    where notification_id {{any:ids}}
    returning {NOTIFICATION_COLUMNS}, claim_token, orphan_count, {{now}} as claimed_at
"""
_take = Statement(
    f"""
    with taken as ({_TAKE}),
    started as (
        insert into attempts (notification_id, claim_token, cycle, node_id, is_lone, started_at)
        select notification_id, claim_token, cycle, :owner, :lone, claimed_at from taken
    )
    select * from taken
    """,
    # SQLite has no writing common table expressions: _start_attempts does the second half there.
    sqlite=_TAKE,
    lists={"ids": "id"},
    result={**NOTIFICATION_TYPES, "claim_token": BigInteger, "orphan_count": Integer, "claimed_at": Moment},
)

_start_attempts = Statement(
    """
    insert into attempts (notification_id, claim_token, cycle, node_id, is_lone, started_at)
    select notification_id, claim_token, cycle, :owner, :lone, :started_at
    from notifications where notification_id {any:ids}
    """,
    lists={"ids": "id"},
)

_fix_targets = Statement(
    """
    insert into targets (notification_id, address, status)
    select n.notification_id, l.address, 'due'
    from notifications n join list_targets l on l.list_name = n.list_name
    where n.notification_id {any:ids}
        and not exists (select 1 from targets t where t.notification_id = n.notification_id)
    returning notification_id, address, status, error
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "address": Text, "status": Text, "error": Text},
)

_targets = Statement(
    """
    select notification_id, address, status, error from targets
    where notification_id {any:ids} order by notification_id, address
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "address": Text, "status": Text, "error": Text},
)

_HELD_CLAIMS: Mapping[str, Kind] = {"notification_id": "id", "claim_token": "int"}
_IS_MINE = (
    "notifications.notification_id = u.notification_id and notifications.claim_token = u.claim_token"
    " and notifications.claim_owner = :owner"
)

_renew = Statement(
    f"""
    update notifications set lease_until = {{now+lease_s}} from {{rows}} where {_IS_MINE}
    returning notifications.notification_id
    """,
    rows=_HELD_CLAIMS,
    result={"notification_id": Id},
)

_release = Statement(
    f"""
    update notifications set claim_owner = null, lease_until = null
    from {{rows}} where {_IS_MINE}
    returning notifications.notification_id
    """,
    rows=_HELD_CLAIMS,
    result={"notification_id": Id},
)

_end_released = Statement(
    """
    update attempts set finished_at = {now}, outcome = 'released', error = :reason
    from {rows} where attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
    """,
    rows=_HELD_CLAIMS,
)

_suspects = Statement(
    f"""
    select 1 as found from notifications where {_IS_SUSPECT} limit 1
    """
)

# The earliest due row of each key, walked like a claim; rows in somebody's hands are not waited for.
_next_due = Statement(
    f"""{_walk}
    select min((select due_at from notifications
                where {_IN_LANE} and delivery_key = keys.k and {_NOT_CLAIMED}
                order by due_at limit 1)) as due_at
    from keys
    """,
    result={"due_at": Moment},
)

_void = Statement("update notifications set lease_until = 0 where claim_owner is not null and lease_until > 0")


def claim_due(
    conn: Connection,
    owner: str,
    lane: Lane,
    *,
    limit: int,
    per_key: int,
    busy: Mapping[str, int],
    after: str,
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> list[Claimed]:
    """Take at most `limit` due rows of the lane, at most `per_key` of a key less those of it that are busy here.

    `mine` are the ids in this node's hands already.
    """
    plan_anew(conn)
    found = _candidates.run(
        conn,
        list(busy.items()),
        status=lane.status.value,
        after=after,
        per_key=per_key,
        limit=limit,
        wasted=len(busy),
        mine=mine,
        now=now,
    )
    return _take_all(conn, owner, _within_share(found, busy, per_key)[:limit], lease_s, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a lane may be taken: in all, of one key, and what of each key is taken already."""

    lane: Lane
    limit: int
    per_key: int
    busy: Mapping[str, int]


def claim_lanes(
    conn: Connection,
    owner: str,
    shares: Sequence[Share],
    *,
    free: int,
    after: Mapping[Lane, str],
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> dict[Lane, list[Claimed]]:
    """Take at most `free` rows by these shares, one after the other, in one transaction."""
    taken: dict[Lane, list[Claimed]] = {lane: [] for lane in Lane}
    keys: Counter[str] = Counter()
    for share in shares:
        limit = min(share.limit, free - keys.total())
        if limit > 0:
            claimed = claim_due(
                conn,
                owner,
                share.lane,
                limit=limit,
                per_key=share.per_key,
                busy=keys + Counter(share.busy),
                after=after[share.lane],
                lease_s=lease_s,
                now=now,
                mine=mine,
            )
            keys.update(one.notification.delivery_key for one in claimed)
            taken[share.lane] += claimed
    return taken


def claim_lone(conn: Connection, owner: str, *, lease_s: float, now: datetime | None) -> list[Claimed]:
    """Take one suspect, to be attempted alone on this node."""
    plan_anew(conn)
    return _take_all(conn, owner, [row.notification_id for row in _lone.run(conn, now=now)], lease_s, now, lone=True)


def claim_probe(
    conn: Connection,
    owner: str,
    breaker_key: str,
    *,
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> list[Claimed]:
    """Take one row that is held behind this breaker, to probe it."""
    plan_anew(conn)
    found = _probe.run(conn, breaker_key=breaker_key, mine=mine, now=now)
    return _take_all(conn, owner, [row.notification_id for row in found], lease_s, now)


def renew(
    conn: Connection, owner: str, claims: Collection[tuple[str, int]], *, lease_s: float, now: datetime | None
) -> set[str]:
    """Lengthen the leases of these (id, token); the ids that are still this owner's."""
    return {row.notification_id for row in _renew.run(conn, list(claims), owner=owner, lease_s=lease_s, now=now)}


def release(
    conn: Connection, owner: str, claims: Collection[tuple[str, int]], reason: str, *, now: datetime | None
) -> set[str]:
    """Give claims back unsent: the rows are as they were, the attempts say why they ended."""
    tokens = dict(claims)
    mine = {row.notification_id for row in _release.run(conn, list(claims), owner=owner)}
    _end_released.run(conn, [(i, tokens[i]) for i in mine], reason=reason, now=now)
    return mine


def void_all(conn: Connection) -> None:
    """Let every claim run out now: on SQLite a new process knows that no other is left to hold one."""
    _void.run(conn)


def has_suspects(conn: Connection, *, now: datetime | None) -> bool:
    """Whether a row waits to be attempted alone."""
    plan_anew(conn)
    return bool(_suspects.run(conn, now=now))


def next_due(conn: Connection, *, now: datetime | None) -> datetime | None:
    """When the next row that nobody holds is due; in the past where it is due already."""
    plan_anew(conn)
    found = [_next_due.run(conn, status=lane.status.value, after="", now=now)[0].due_at for lane in Lane]
    return min((due_at for due_at in found if due_at is not None), default=None)


def targets_of(conn: Connection, ids: Collection[str]) -> dict[str, list[Target]]:
    """The targets of these notifications, in order of address."""
    return _by_id(_targets.run(conn, ids=list(ids)) if ids else [])


def _within_share(found: Sequence[Row[Any]], busy: Mapping[str, int], per_key: int) -> list[str]:
    """The ids found, no more of a key than its share; a row holds one id, or on SQLite all of a key."""
    share = dict(busy)
    taken = []
    for row in found:
        for notification_id in row.notification_id.split(","):
            if share.get(row.delivery_key, 0) < per_key:
                share[row.delivery_key] = share.get(row.delivery_key, 0) + 1
                taken.append(notification_id)
    return taken


def _take_all(
    conn: Connection, owner: str, ids: list[str], lease_s: float, now: datetime | None, *, lone: bool = False
) -> list[Claimed]:
    if not ids:
        return []
    taken = _take.run(conn, ids=ids, owner=owner, lease_s=lease_s, lone=lone, now=now)
    if conn.dialect.name == "sqlite":
        _start_attempts.run(conn, ids=ids, owner=owner, lone=lone, started_at=taken[0].claimed_at)
    targets = _by_id(_fix_targets.run(conn, ids=ids))
    targets |= targets_of(conn, [i for i in ids if i not in targets])
    return [
        Claimed(
            to_core.notification(row, targets.get(row.notification_id, ())),
            row.claim_token,
            row.claimed_at,
            lone,
            # With two orphans only a lone claim is possible, so a third is the orphan of a lone attempt.
            row.orphan_count > 2,
        )
        for row in taken
    ]


def _by_id(found: Sequence[Row[Any]]) -> dict[str, list[Target]]:
    targets: dict[str, list[Target]] = {}
    for row in found:
        targets.setdefault(row.notification_id, []).append(to_core.target(row))
    return targets
