"""Breakers, changed in sets under row locks, and the notifications held behind them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Connection, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.schema.notification_tables import IS_CLAIMABLE, breakers
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY

HELD_KEYS_MAX = 1000
IS_SETTLED = """
    state = 'closed' and failures = 0 and version > 0 and release_size = 0 and warned_percent = 0
    and first_failure_at is null and last_failure_at is null and failing_since is null and open_until is null
    and probe_owner is null and probe_until is null and probed_key is null
"""
"""A success changes nothing: `core.delivery.breaker.record_success` returns the same breaker."""

_IS_TO_HOLD = f"""
    {IS_CLAIMABLE} and due_at <= (select at from moment)
    and (lease_until is null or lease_until <= (select at from moment)) and orphan_count = 0
"""
_HOLDS: Mapping[str, ParameterKind] = {
    "of_key": "text",
    "hold": "text",
    "reason": "text",
    "until": "moment",
    # Microseconds between the ends of the holds of a key: rows that wait for a rate get their turns one by one.
    "spacing": "int",
}
_hold = Statement(
    # Lane by lane and key by key, as the index of claimable rows has them. Rows are locked in the order of their ids.
    f"""
    with moment as (select {{now}} as at),
    found as materialized (
        select due.notification_id, u.hold, u.reason,
            u.until + (row_number() over (partition by u.of_key order by due.due_at) - 1) * u.spacing
                * interval '1 microsecond' as until
        from {{rows}} cross join (values ('pending'), ('retrying')) as lane(status)
        cross join lateral (
            select notification_id, due_at from notifications n
            where {_IS_TO_HOLD} and n.status = lane.status and n.delivery_key = u.of_key
            order by n.due_at limit :limit for update skip locked
        ) as due
        limit :limit
    )
    update notifications set held_by = found.hold, held_reason = found.reason, due_at = found.until,
        is_timed = :is_timed, version = version + 1
    from found
    where notifications.notification_id = any(array(select notification_id from found))
        and notifications.notification_id = found.notification_id
    returning notifications.notification_id
    """,
    # SQLite would read the whole table to join a set of rows with it: see _hold_sqlite.
    sqlite="select 1",
    rows=_HOLDS,
    result={"notification_id": Id},
)

_hold_sqlite = Statement(
    f"""
    with moment as (select {{now}} as at)
    update notifications set held_by = :hold, held_reason = :reason, due_at = :until, is_timed = :is_timed,
        version = version + 1
    where notification_id in (
        select notification_id from notifications
        where {_IS_TO_HOLD} and status in ('pending', 'retrying') and delivery_key = :of_key limit :limit
    ) returning notification_id
    """,
    result={"notification_id": Id},
)
_hold_spaced_sqlite = Statement(
    f"""
    with moment as (select {{now}} as at),
    found as materialized (
        select notification_id, row_number() over (order by due_at) - 1 as turn from (
            select notification_id, due_at from notifications
            where {_IS_TO_HOLD} and status in ('pending', 'retrying') and delivery_key = :of_key limit :limit
        )
    )
    update notifications set held_by = :hold, held_reason = :reason, is_timed = :is_timed, version = version + 1,
        due_at = :until + :spacing * (select turn from found f where f.notification_id = notifications.notification_id)
    where notification_id in (select notification_id from found)
    returning notification_id
    """,
    result={"notification_id": Id},
)

# Rows behind a closed breaker are released at once; behind one that counts failures, when their short hold is over.
# A pause does not age a row: its cycle starts again.
_RELEASE = """
    update notifications set held_by = null, held_reason = null, version = version + 1,
        cycle_started_at = case when held_by like 'pause:%' then {now} else cycle_started_at end,
        due_at = case when due_at > {now} then {now} else due_at end
    where notification_id
"""
_RELEASES: Mapping[str, ParameterKind] = {"key": "text", "is_healthy": "bool"}
_release_held = Statement(
    f"""{_RELEASE} = any(array(
        select held.notification_id from {{rows}}
        cross join lateral (
            select n.notification_id from notifications n
            where n.held_by = u.key and not n.is_timed and (u.is_healthy or n.due_at <= {{now}})
            order by n.due_at limit :limit for update skip locked
        ) as held
    )) returning notification_id""",
    sqlite=f"""{_RELEASE} in (
        select n.notification_id from {{rows}} join notifications n on n.held_by = u.key
        where not n.is_timed and (u.is_healthy or n.due_at <= {{now}})
        order by n.due_at limit :limit
    ) returning notification_id""",
    rows=_RELEASES,
    result={"notification_id": Id},
)

# Rows of lists with another channel now: the breaker that holds them is no longer theirs.
_free_keys = Statement(
    """
    update notifications set held_by = null, held_reason = null, version = version + 1,
        due_at = case when due_at > {now} then {now} else due_at end
    where held_by is not null and not is_timed and delivery_key {any:keys} and held_by <> :held_by
    """,
    lists={"keys": "text"},
)

_COLUMNS = {column.name: column.type for column in breakers.c}
_ROW: Mapping[str, ParameterKind] = {
    "key": "text",
    "state": "text",
    "failures": "int",
    "first_failure_at": "moment",
    "last_failure_at": "moment",
    "last_error": "text",
    "open_until": "moment",
    "probe_owner": "text",
    "probe_until": "moment",
    "version": "int",
    "failing_since": "moment",
    "warned_percent": "int",
    "release_size": "int",
    "wait_until": "moment",
    "wait_kind": "text",
    "wait_reason": "text",
    "probed_key": "text",
}
_add = Statement(
    """
    insert into breakers (key, state, failures, version) select key, 'closed', 0, 0 from {rows} where true order by key
    on conflict (key) do nothing
    """,
    rows={"key": "text"},
)
_locked = Statement(
    f"select {', '.join(_COLUMNS)} from breakers where key {{any:keys}} order by key for update",
    sqlite=f"select {', '.join(_COLUMNS)} from breakers where key {{any:keys}} order by key",
    lists={"keys": "text"},
    result=_COLUMNS,
)
_update = Statement(
    f"""
    update breakers set {", ".join(f"{name} = u.{name}" for name in _ROW if name != "key")}
    from {{rows}} where breakers.key = u.key
    """,
    rows=_ROW,
)
_shared = Statement(
    f"select {', '.join(_COLUMNS)} from breakers where key not like '{SUBSCRIPTION_KEY}%'", result=_COLUMNS
)
_failing_counts = Statement(
    """
    select count(case when state = 'closed' then 1 end) as monitored,
        count(case when state <> 'closed' then 1 end) as blocked
    from breakers where (state <> 'closed' or failures > 0) and key like :prefix || '%'
    """,
    result={"monitored": BigInteger, "blocked": BigInteger},
)
_stale = Statement(
    """
    select key from breakers where (state = 'open' or failures > 0) and last_failure_at < :before
        and key like :prefix || '%'
    limit :limit
    """,
    result={"key": Text},
)
_held_counts_of = Statement(
    """
    select u.key, (
        select count(*) from (
            select 1 from notifications n where n.held_by = u.held_by and not n.is_timed limit :count_max
        ) as found
    ) as held from {rows}
    """,
    rows={"key": "text", "held_by": "text"},
    result={"key": Text, "held": BigInteger},
)
_these = Statement(
    f"select {', '.join(_COLUMNS)} from breakers where key {{any:keys}}", lists={"keys": "text"}, result=_COLUMNS
)

_KEYS = """
    with recursive keys as (
        select (
            select held_by from notifications where held_by is not null and not is_timed and held_by > :after
            order by held_by limit 1
        ) as k
        union all
        select (
            select held_by from notifications where held_by is not null and not is_timed and held_by > keys.k
            order by held_by limit 1
        )
        from keys where keys.k is not null
    )
"""
_held_keys = Statement(
    f"""
    {_KEYS}
    select k, (
        select due_at from notifications where held_by = keys.k and not is_timed order by due_at limit 1
    ) as due_at
    from keys where k is not null limit :limit
    """,
    result={"k": Text, "due_at": Moment},
)
_held_counts = Statement(
    f"""
    {_KEYS}
    select k, (
        select count(*) from (
            select 1 from notifications n where n.held_by = keys.k and not n.is_timed limit :count_max
        ) as found
    ) as held
    from keys where k is not null
    """,
    result={"k": Text, "held": BigInteger},
)


def load(conn: Connection, keys: Collection[str]) -> dict[str, Breaker]:
    """The breakers of these keys that have a row."""
    return {row.key: _breaker(row._asdict()) for row in _these.run(conn, keys=list(keys))}


def of_channels_and_lists(conn: Connection) -> dict[str, Breaker]:
    """All breakers but those of subscriptions, which may be many."""
    found = _shared.run(conn)
    return {row.key: _breaker(row._asdict()) for row in found}


def failing_counts(conn: Connection, prefix: str) -> dict[str, int]:
    """How many breakers of keys with this prefix are monitored, and how many blocked."""
    return dict(_failing_counts.run(conn, prefix=prefix)[0]._mapping)


def stale(conn: Connection, prefix: str, before: datetime, limit: int) -> list[str]:
    """Keys with this prefix that count failures or are open, and whose last failure is older than this."""
    return [row.key for row in _stale.run(conn, prefix=prefix, before=before, limit=limit)]


def change(conn: Connection, key: str, rule: Callable[[Breaker], Breaker | None]) -> Breaker | None:
    """Apply a rule of `core.breaker` to one breaker; the breaker after it, or the rule's None."""
    return change_many(conn, {key: rule}).get(key)


def change_many(
    conn: Connection,
    rules: Mapping[str, Callable[[Breaker], Breaker | None]],
    changes: list[tuple[Breaker, Breaker]] | None = None,
) -> dict[str, Breaker]:
    """Apply a rule to each of these breakers, in one set; the breakers after it, without those whose rule is None.
    `changes` receives each changed breaker, before and after.

    The rows are locked in the order of their keys, so that nodes that change the same breakers wait for each other and
    never deadlock. A breaker without a row is added first where its rule changes it.
    """
    if not rules:
        return {}
    keys = sorted(rules)
    seen = load(conn, keys)
    new = [key for key in keys if key not in seen and rules[key](Breaker(key)) not in (None, Breaker(key))]
    if new:
        _add.run(conn, [(key,) for key in new])
    locked = {row.key: _breaker(row._asdict()) for row in _locked.run(conn, keys=keys)}
    after: dict[str, Breaker] = {}
    changed = []
    for key in keys:
        before = locked.get(key, Breaker(key))
        wanted = rules[key](before)
        if wanted is None:
            continue
        if wanted is not before and wanted != before:
            wanted = replace(wanted, version=before.version + 1)
            changed.append(wanted)
            if changes is not None:
                changes.append((before, wanted))
        after[key] = wanted
    if changed:
        _update.run(conn, [_row(breaker) for breaker in changed])
    return after


def hold_rows(
    conn: Connection,
    holds: Sequence[tuple[str, str, str, datetime]],
    limit: int,
    *,
    is_timed: bool = False,
    spacing: Mapping[str, int] | None = None,
    now: datetime | None,
) -> int:
    """Hold due rows without an attempt, a bounded batch: (delivery key, held_by, reason, until); how many.
    `spacing` is the time between the turns of a key's rows, in microseconds."""
    if not holds:
        return 0
    if conn.dialect.name != "sqlite":
        rows = [(*hold, (spacing or {}).get(hold[0], 0)) for hold in sorted(holds)]
        return len(_hold.run(conn, rows, limit=limit, is_timed=is_timed, now=now))
    count = 0
    for hold in sorted(holds):
        given: dict[str, Any] = {**dict(zip(_HOLDS, hold, strict=False)), "is_timed": is_timed, "limit": limit - count}
        if space := (spacing or {}).get(hold[0], 0):
            count += len(_hold_spaced_sqlite.run(conn, **given, spacing=space, now=now))
        else:
            count += len(_hold_sqlite.run(conn, **given, now=now))
    return count


def release_held(conn: Connection, breakers: Collection[Breaker], limit: int, *, now: datetime | None) -> int:
    """Make rows behind breakers that do not block claimable, at most `limit` for each; how many."""
    rows = sorted((breaker.key, breaker.failures == 0) for breaker in breakers)
    # SQLite limits a statement as a whole.
    batches = [[row] for row in rows] if conn.dialect.name == "sqlite" else [rows]
    return sum(len(_release_held.run(conn, batch, limit=limit, now=now)) for batch in batches if batch)


def free_keys(conn: Connection, keys: Collection[str], held_by: str, *, now: datetime | None) -> None:
    """Release rows of these delivery keys that are held behind a breaker other than their present one."""
    if keys:
        _free_keys.run(conn, keys=list(keys), held_by=held_by, now=now)


def held_keys(conn: Connection, after: str = "", limit: int = HELD_KEYS_MAX) -> dict[str, datetime]:
    """The breakers behind which rows are held, in order of their keys, each with the earliest due time behind it."""
    return {row.k: row.due_at for row in _held_keys.run(conn, after=after, limit=limit)}


def held_counts(conn: Connection, count_max: int) -> dict[str, int]:
    """How many rows are held behind each breaker that holds any; none is counted beyond `count_max`."""
    return {row.k: row.held for row in _held_counts.run(conn, count_max=count_max, after="")}


def held_counts_of(conn: Connection, held_by: Mapping[str, Collection[str]], count_max: int) -> dict[str, int]:
    """How many rows each key's holds keep from being sent, given the texts of these holds; up to `count_max` each."""
    pairs = [(key, text) for key, texts in held_by.items() for text in texts]
    held = dict.fromkeys(held_by, 0)
    for row in _held_counts_of.run(conn, pairs, count_max=count_max) if pairs else ():
        held[row.key] += row.held
    return held


def _row(breaker: Breaker) -> tuple[Any, ...]:
    return tuple(breaker.state.value if name == "state" else getattr(breaker, name) for name in _ROW)


def _breaker(row: dict[str, object]) -> Breaker:
    return Breaker(**row | {"state": BreakerState(str(row["state"]))})  # type: ignore[arg-type]
