"""Breakers, changed by compare-and-set on their version, and the notifications held behind them."""

from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text, update
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.notification_tables import IS_CLAIMABLE, breakers
from fieldpost.core.breaker import Breaker, BreakerState

CHANGES_MAX = 20

# PostgreSQL takes the ids as an array: joined as a set it may read the whole table to find a batch of them.
_HOLD = """
    with moment as (select {now} as at)
    update notifications set held_by = :held_by, held_reason = :reason, due_at = :until, version = version + 1
    where notification_id
"""
_IS_TO_HOLD = f"""
    {IS_CLAIMABLE} and due_at <= (select at from moment)
    and (lease_until is null or lease_until <= (select at from moment)) and orphan_count = 0
"""
_hold_keys = Statement(
    # By lane and key, like the index of claimable rows.
    f"""{_HOLD} = any(array(
        select due.notification_id
        from unnest(cast(:keys as text[])) as given(k) cross join (values ('pending'), ('retrying')) as lane(status)
        cross join lateral (
            select notification_id from notifications n
            where {_IS_TO_HOLD} and n.status = lane.status and n.delivery_key = given.k
            order by n.due_at limit :limit for update skip locked
        ) as due
        limit :limit
    )) returning notification_id""",
    sqlite=f"""{_HOLD} in (
        select notification_id from notifications
        where {_IS_TO_HOLD} and status in ('pending', 'retrying') and delivery_key {{any:keys}} limit :limit
    ) returning notification_id""",
    lists={"keys": "text"},
    result={"notification_id": Id},
)

# Rows behind a closed breaker are released at once; behind one that counts failures, when their short hold is over.
_RELEASE = """
    update notifications set held_by = null, held_reason = null, version = version + 1,
        due_at = case when due_at > {now} then {now} else due_at end
    where notification_id
"""
_TO_RELEASE = """
    select n.notification_id from notifications n
    where n.held_by = :key and (:is_healthy or n.due_at <= {now})
    order by n.due_at limit :limit {locked}
"""
_release_held = Statement(
    f"{_RELEASE} = any(array({_TO_RELEASE})) returning notification_id",
    sqlite=f"{_RELEASE} in ({_TO_RELEASE}) returning notification_id",
    result={"notification_id": Id},
)

# Rows of lists with another channel now: the breaker that holds them is no longer theirs.
_free_keys = Statement(
    """
    update notifications set held_by = null, held_reason = null, version = version + 1,
        due_at = case when due_at > {now} then {now} else due_at end
    where held_by is not null and delivery_key {any:keys} and held_by <> :held_by
    """,
    lists={"keys": "text"},
)

_COLUMNS = {column.name: column.type for column in breakers.c}
_all = Statement(f"select {', '.join(_COLUMNS)} from breakers", result=_COLUMNS)
_these = Statement(
    f"select {', '.join(_COLUMNS)} from breakers where key {{any:keys}}", lists={"keys": "text"}, result=_COLUMNS
)

_KEYS = """
    with recursive keys as (
        select (select held_by from notifications where held_by is not null order by held_by limit 1) as k
        union all
        select (select held_by from notifications where held_by > keys.k order by held_by limit 1)
        from keys where keys.k is not null
    )
"""
_held_keys = Statement(
    f"""
    {_KEYS}
    select k, (select due_at from notifications where held_by = keys.k order by due_at limit 1) as due_at
    from keys where k is not null
    """,
    result={"k": Text, "due_at": Moment},
)
_held_counts = Statement(
    f"""
    {_KEYS}
    select k, (
        select count(*) from (select 1 from notifications n where n.held_by = keys.k limit :count_max) as found
    ) as held
    from keys where k is not null
    """,
    result={"k": Text, "held": BigInteger},
)


def load(conn: Connection, keys: Collection[str] | None = None) -> dict[str, Breaker]:
    """The breakers of these keys that have a row, or all."""
    found = _all.run(conn) if keys is None else _these.run(conn, keys=list(keys))
    return {row.key: _breaker(row._asdict()) for row in found}


def change(conn: Connection, key: str, rule: Callable[[Breaker], Breaker | None]) -> Breaker | None:
    """Apply a rule of `core.breaker` to the row, by compare-and-set; the breaker after it, or the rule's None."""
    for _ in range(CHANGES_MAX):
        seen = load(conn, [key]).get(key, Breaker(key))
        wanted = rule(seen)
        if wanted is None or wanted is seen or _write(conn, seen, wanted):
            return wanted
    raise RuntimeError(f"breaker {key} was changed concurrently {CHANGES_MAX} times")


def hold_keys(
    conn: Connection,
    keys: Collection[str],
    held_by: str,
    reason: str,
    until: datetime,
    limit: int,
    *,
    now: datetime | None,
) -> int:
    """Put due rows of these delivery keys behind a breaker that is open, without an attempt; how many."""
    return len(_hold_keys.run(conn, keys=list(keys), held_by=held_by, reason=reason, until=until, limit=limit, now=now))


def release_held(conn: Connection, key: str, is_healthy: bool, limit: int, *, now: datetime | None) -> int:
    """Release a bounded batch of rows behind a breaker that no longer blocks; how many."""
    return len(_release_held.run(conn, key=key, is_healthy=is_healthy, limit=limit, now=now))


def free_keys(conn: Connection, keys: Collection[str], held_by: str, *, now: datetime | None) -> None:
    """Release rows of these delivery keys that are held behind any other breaker than their present one."""
    if keys:
        _free_keys.run(conn, keys=list(keys), held_by=held_by, now=now)


def held_keys(conn: Connection) -> dict[str, datetime]:
    """The breakers behind which rows are held, each with the earliest due time behind it."""
    return {row.k: row.due_at for row in _held_keys.run(conn)}


def held_counts(conn: Connection, count_max: int) -> dict[str, int]:
    """The number of rows behind each breaker that holds any, counted up to `count_max`."""
    return {row.k: row.held for row in _held_counts.run(conn, count_max=count_max)}


def _write(conn: Connection, seen: Breaker, wanted: Breaker) -> bool:
    values = {name: getattr(wanted, name) for name in Breaker.__dataclass_fields__}
    values |= {"state": wanted.state.value, "version": seen.version + 1}
    if seen.version == 0:
        add = insert_postgresql if conn.dialect.name == "postgresql" else insert_sqlite
        return conn.execute(add(breakers).values(values).on_conflict_do_nothing()).rowcount == 1
    changed = update(breakers).where(breakers.c.key == seen.key, breakers.c.version == seen.version).values(values)
    return conn.execute(changed).rowcount == 1


def _breaker(row: dict[str, object]) -> Breaker:
    return Breaker(**row | {"state": BreakerState(str(row["state"]))})  # type: ignore[arg-type]
