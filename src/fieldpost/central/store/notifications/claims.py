"""Claims: a node's time-limited right to work on due rows.

Theory of operation. A claim is taken in one short transaction: owner, token + 1, lease end by the database's clock, and
the attempt row ("started") beside it. Nothing is open while an adapter talks. A claim ends with `apply` (attempts.py)
or `release`; a crashed node's claims end when their lease runs out, and the next claim takes such rows like any other,
so no leader is needed. A token only ever grows: a holder of an older one changes nothing.

`due.py` decides which rows can be claimed. A row orphaned twice is claimed only to be
attempted while the node does nothing else. It is parked only if the process is known to have crashed in such a lone
attempt (`mark_crashed`): a kill from outside or a power cut is not the notification's fault. Another claim ends the
attempt of an orphan as `abandoned`; a late result of that attempt replaces this end.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Integer, Row
from sqlalchemy.types import NullType, TypeEngine

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications import due
from fieldpost.central.store.notifications.targets import targets_of
from fieldpost.central.store.schema import rows as to_core
from fieldpost.central.store.schema.rows import NOTIFICATION_COLUMNS, NOTIFICATION_TYPES
from fieldpost.core.delivery.lanes import Lane
from fieldpost.core.frozen import frozen
from fieldpost.core.lists import UNRESOLVED_TYPE
from fieldpost.core.notification import LIST_KEY, Notification, Target, TargetStatus

_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@frozen
class Claimed:
    """A row that this node has claimed."""

    notification: Notification
    token: int
    claimed_at: datetime
    """By the database's clock. With the monotonic time since then a node knows the database's time without a query."""
    is_lone: bool
    """Attempt it while the node does nothing else."""
    has_crashed: bool
    """A process crashed in a lone attempt of this cycle: do not attempt it again."""


_TAKE = f"""
    update notifications set
        claim_owner = :owner,
        claim_token = claim_token + 1,
        lease_until = {{now+lease_s}},
        orphan_count = {due.ORPHANS},
        type = case when type = '{UNRESOLVED_TYPE}' then coalesce((
            select l.type from lists l where l.list_name = substr(notifications.delivery_key, 6)
        ), type) else type end
    where notification_id {{which}}
    returning {NOTIFICATION_COLUMNS}, claim_token, orphan_count, {{now}} as claimed_at
"""
_THESE = "{any:ids}"
ABANDONED = "its node stopped responding, and its claim was taken over"
# The first claim that finds the list with targets fixes the targets; `fixed` is empty if an earlier claim did. A draft
# gets its targets with its text, because they may come from its event instead of the list (`store/events/routed.py`).
_TAKEN = """
    resolved as materialized (
        select taken.*, array(
            select address from (
                select l.address from list_targets l where l.list_name = substr(taken.delivery_key, 6)
                    and taken.delivery_key like 'list:%'
                union all
                select taken.delivery_key where taken.delivery_key not like 'list:%'
            ) as found
            where not taken.is_draft
                and not exists (select 1 from targets t where t.notification_id = taken.notification_id)
            order by address
        ) as fixed
        from taken
    ),
    abandoned as (
        update attempts set finished_at = taken.claimed_at, outcome = 'abandoned', error = '{abandoned}'
        from taken where taken.orphan_count > 0 and attempts.notification_id = taken.notification_id
            and attempts.claim_token = taken.claim_token - 1 and attempts.finished_at is null
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
""".replace("{abandoned}", ABANDONED)
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

_end_abandoned = Statement(
    f"""
    update attempts set finished_at = :at, outcome = 'abandoned', error = '{ABANDONED}'
    from {{rows}} where attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
        and attempts.finished_at is null
    """,
    rows={"notification_id": "id", "claim_token": "int"},
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
    select n.notification_id, coalesce(l.address, n.delivery_key), 'due'
    from notifications n left join list_targets l
        on n.delivery_key like 'list:%' and l.list_name = substr(n.delivery_key, 6)
    where n.notification_id {any:ids} and not n.is_draft
        and (l.address is not null or n.delivery_key not like 'list:%')
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

# The lease of a lone attempt ends now: the next one waits from here (`due.LONE_WAIT_S`).
_void = Statement(
    """
    update notifications set lease_until = case when orphan_count >= 2 then {now} else 0 end
    where claim_owner is not null and lease_until > 0
    """
)

_mark_crashed = Statement(
    """
    update attempts set finished_at = coalesce(finished_at, {now}), outcome = 'crashed', error = :error
    where notification_id {any:ids} and claim_token = :token and is_lone
        and (finished_at is null or outcome = 'abandoned')
    """,
    lists={"ids": "id"},
)
_end_wait = Statement(
    """
    update notifications set lease_until = :past
    where notification_id {any:ids} and claim_token = :token and lease_until is not null
    """,
    lists={"ids": "id"},
)
_crashed = Statement(
    """
    select 1 as found from notifications n join attempts a on a.notification_id = n.notification_id
    where n.notification_id {any:ids} and a.cycle = n.cycle and a.is_lone and a.outcome = 'crashed' limit 1
    """,
    lists={"ids": "id"},
)


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
    prefix: str = LIST_KEY,
) -> list[Claimed]:
    """Take at most `limit` due rows of the lane, and at most `per_key` of a key less its busy ones.

    `mine` are the ids in this node's hands already.
    """
    wanted = due.wanted(lane, limit=limit, per_key=per_key, busy=busy, after=after, mine=mine, prefix=prefix)
    if conn.dialect.name == "sqlite":
        return take_all(conn, owner, due.find_due(conn, wanted, busy, now=now), lease_s, now)
    taken = _take_due.run(conn, **wanted, owner=owner, lease_s=lease_s, lone=False, now=now)
    return _claimed(conn, taken, is_lone=False)


def claim_lone(conn: Connection, owner: str, *, lease_s: float, now: datetime | None) -> list[Claimed]:
    """Take one suspect, to be attempted alone on this node."""
    ids = due.find_lone(conn, now=now)
    has_crashed = bool(ids and _crashed.run(conn, ids=ids))
    return [replace(one, has_crashed=has_crashed) for one in take_all(conn, owner, ids, lease_s, now, lone=True)]


def mark_crashed(conn: Connection, notification_id: str, token: int, error: str, *, now: datetime | None) -> None:
    """End the lone attempt in which its process crashed. The next claim parks the notification."""
    _mark_crashed.run(conn, ids=[notification_id], token=token, error=error, now=now)
    _end_wait.run(conn, ids=[notification_id], token=token, past=_LONG_AGO)


def claim_probes(
    conn: Connection,
    owner: str,
    breaker_keys: Mapping[str, str | None],
    *,
    lease_s: float,
    now: datetime | None,
    mine: Collection[str] = (),
) -> list[Claimed]:
    """Take one row held behind each of these breakers, where there is one, to probe it.

    Each breaker comes with the delivery key of its last probe; another one is probed this time, if there is one.
    """
    return take_all(conn, owner, due.find_probes(conn, breaker_keys, mine=mine, now=now), lease_s, now)


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


def void_all(conn: Connection, *, now: datetime | None) -> None:
    """End every claim now: on SQLite a new process knows that no other process is left."""
    _void.run(conn, now=now)


def take_all(
    conn: Connection, owner: str, ids: list[str], lease_s: float, now: datetime | None, *, lone: bool = False
) -> list[Claimed]:
    """Take these rows, which were found due and locked."""
    if not ids:
        return []
    taken = _take.run(conn, ids=ids, owner=owner, lease_s=lease_s, lone=lone, now=now)
    if conn.dialect.name == "sqlite":
        orphaned = [(row.notification_id, row.claim_token - 1) for row in taken if row.orphan_count > 0]
        if orphaned:
            _end_abandoned.run(conn, orphaned, at=taken[0].claimed_at)
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
            has_crashed=False,
        )
        for row in taken
    ]
