"""Claims: a node's time-limited right to work on due rows.

Theory of operation. A claim is taken in one short transaction: owner, token + 1, lease end by the database's clock,
and the attempt row ("started") beside it. No transaction is open while an adapter sends. A claim ends with
`finishing.apply` or `release`; a crashed node's claims end when their lease runs out, and the next claim takes such
rows like any other, so no leader is needed. A token only grows: the holder of an older one changes nothing.

`due.py` finds the rows to take. A row orphaned twice is claimed only to be
attempted while the node does nothing else; only the orphan of such a lone attempt is parked.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Row
from sqlalchemy.types import NullType, TypeEngine

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications import due
from fieldpost.central.store.notifications.targets import targets_of
from fieldpost.central.store.schema import rows as to_core
from fieldpost.central.store.schema.rows import NOTIFICATION_COLUMNS, NOTIFICATION_TYPES
from fieldpost.core.lanes import Lane
from fieldpost.core.notification import Notification, Target, TargetStatus


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that this node has claimed."""

    notification: Notification
    token: int
    claimed_at: datetime
    """By the database's clock. With the monotonic time since then a node knows the database's time without a query."""
    is_lone: bool
    """To be attempted while the node does nothing else."""
    is_orphan_of_lone: bool
    """The node died in the lone attempt: do not attempt it again."""


_TAKE = f"""
    update notifications set
        claim_owner = :owner,
        claim_token = claim_token + 1,
        lease_until = {{now+lease_s}},
        orphan_count = {due.ORPHANS}
    where notification_id {{which}}
    returning {NOTIFICATION_COLUMNS}, claim_token, orphan_count, {{now}} as claimed_at
"""
_THESE = "{any:ids}"
# The first claim that finds the list with targets fixes the targets; `fixed` is empty if an earlier claim did.
_TAKEN = """
    resolved as materialized (
        select taken.*, array(
            select l.address from list_targets l
            where l.list_name = taken.list_name
                and not exists (select 1 from targets t where t.notification_id = taken.notification_id)
            order by l.address
        ) as fixed
        from taken
    ),
    started as (
        insert into attempts (notification_id, claim_token, cycle, node_id, is_lone, started_at)
        select notification_id, claim_token, cycle, :owner, :lone, claimed_at from taken
    ),
    to_reach as (
        insert into targets (notification_id, address, status)
        select notification_id, unnest(fixed), 'due' from resolved
    )
    select * from resolved
"""
_CLAIMED: Mapping[str, TypeEngine[Any] | type[TypeEngine[Any]]] = {
    **NOTIFICATION_TYPES,
    "claim_token": BigInteger,
    "orphan_count": Integer,
    "claimed_at": Moment,
    "fixed": NullType,
}
_take = Statement(
    f"with taken as ({_TAKE.replace('{which}', _THESE)}), {_TAKEN}",
    # SQLite has no writing common table expressions: _start_attempts and _fix_targets do the rest there.
    sqlite=_TAKE.replace("{which}", _THESE),
    lists={"ids": "id"},
    result=_CLAIMED,
)
# PostgreSQL finds and takes due rows in one statement.
_take_due = Statement(
    f"""{due.WALK},
    due as materialized ({due.DUE}),
    taken as ({_TAKE.replace("{which}", "= any(array(select notification_id from due))")}), {_TAKEN}""",
    sqlite="select 1",
    lists={"mine": "id"},
    result=_CLAIMED,
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
    """,
    lists={"ids": "id"},
)

_HELD_CLAIMS: Mapping[str, ParameterKind] = {"notification_id": "id", "claim_token": "int"}
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
    """Take at most `limit` due rows of the lane, and at most `per_key` of a key less its busy ones.

    `mine` are the ids that this node already works on.
    """
    wanted = due.wanted(lane, limit=limit, per_key=per_key, busy=busy, after=after, mine=mine)
    if conn.dialect.name == "sqlite":
        return _take_all(conn, owner, due.find_due(conn, wanted, busy, now=now), lease_s, now)
    taken = _take_due.run(conn, **wanted, owner=owner, lease_s=lease_s, lone=False, now=now)
    return _claimed(conn, taken, is_lone=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a lane may be taken: in total and per key, with the rows of each key that are already taken."""

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
    empty: set[Lane] = set()
    for share in shares:
        limit = min(share.limit, free - keys.total())
        if limit > 0 and share.lane not in empty:
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
            if not claimed and all(count < share.per_key for count in share.busy.values()):
                empty.add(share.lane)  # every key had a free slot, so another query would find nothing
    return taken


def claim_lone(conn: Connection, owner: str, *, lease_s: float, now: datetime | None) -> list[Claimed]:
    """Take one suspect, to be attempted alone on this node."""
    return _take_all(conn, owner, due.find_lone(conn, now=now), lease_s, now, lone=True)


def claim_probe(
    conn: Connection,
    owner: str,
    breaker_key: str,
    *,
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> list[Claimed]:
    """Take one row that is held behind this breaker, as its probe."""
    return _take_all(conn, owner, due.find_probe(conn, breaker_key, mine=mine, now=now), lease_s, now)


def renew(
    conn: Connection, owner: str, claims: Collection[tuple[str, int]], *, lease_s: float, now: datetime | None
) -> set[str]:
    """Extend the leases of these (id, token); the ids that this owner still has."""
    return {row.notification_id for row in _renew.run(conn, list(claims), owner=owner, lease_s=lease_s, now=now)}


def release(
    conn: Connection, owner: str, claims: Collection[tuple[str, int]], reason: str, *, now: datetime | None
) -> set[str]:
    """Give claims back unsent: the rows are as before, the attempts record the reason."""
    tokens = dict(claims)
    mine = {row.notification_id for row in _release.run(conn, list(claims), owner=owner)}
    _end_released.run(conn, [(i, tokens[i]) for i in mine], reason=reason, now=now)
    return mine


def void_all(conn: Connection) -> None:
    """End every claim now: on SQLite a new process knows that no other process is left."""
    _void.run(conn)


def _take_all(
    conn: Connection, owner: str, ids: list[str], lease_s: float, now: datetime | None, *, lone: bool = False
) -> list[Claimed]:
    if not ids:
        return []
    taken = _take.run(conn, ids=ids, owner=owner, lease_s=lease_s, lone=lone, now=now)
    if conn.dialect.name == "sqlite":
        _start_attempts.run(conn, ids=ids, owner=owner, lone=lone, started_at=taken[0].claimed_at)
        _fix_targets.run(conn, ids=ids)
    return _claimed(conn, taken, is_lone=lone)


def _claimed(conn: Connection, taken: Sequence[Row[Any]], *, is_lone: bool) -> list[Claimed]:
    targets: dict[str, Sequence[Target]] = {}
    if conn.dialect.name != "sqlite":
        targets = {row.notification_id: [Target(a, TargetStatus.DUE) for a in row.fixed] for row in taken if row.fixed}
    targets |= targets_of(conn, [row.notification_id for row in taken if row.notification_id not in targets])
    return [
        Claimed(
            to_core.notification(row, targets.get(row.notification_id, ())),
            row.claim_token,
            row.claimed_at,
            is_lone,
            # With two orphans only a lone claim is possible, so a third is the orphan of a lone attempt.
            row.orphan_count > 2,
        )
        for row in taken
    ]
