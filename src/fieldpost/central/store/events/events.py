"""Recorded events: insert if absent, fan-out to notifications, search.

An event, its number of matches and its notifications are one transaction. The payload is stored once, on the event; a
notification of an event refers to it and has no body of its own.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, LargeBinary, Row, Text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.engine.purging import PurgedBatch, PurgeRange
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.core.events.event import Event
from fieldpost.core.events.subscription import WEBHOOK_TYPE
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.times import to_microseconds


@dataclass(frozen=True, slots=True)
class Matched:
    """An event to record, its digest, and its notifications as (notification id, delivery key, subscription name)."""

    event: Event
    digest: bytes
    notifications: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Source and digest of an event that is recorded already, or was and left a tombstone."""

    source: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as it was recorded."""

    event: Event
    created_at: datetime
    match_count: int


_ROWS: Mapping[str, ParameterKind] = {
    "event_id": "id",
    "topic": "text",
    "source": "text",
    "action": "text",
    "resource": "text",
    "attributes": "text",
    "occurred_at": "moment",
    "correlation_id": "text",
    "payload": "text",
    "match_count": "int",
    "digest": "bytes",
}
_GIVEN = ", ".join(_ROWS)
_insert_postgresql = Statement(
    f"""
    with moment as materialized (select {{now}} as at)
    insert into events ({_GIVEN}, created_at)
    select {", ".join("cast(u.attributes as jsonb)" if name == "attributes" else f"u.{name}" for name in _ROWS)},
        moment.at
    from {{rows}} cross join moment
    where not exists (select 1 from event_tombstones t where t.event_id = u.event_id)
    order by u.event_id
    on conflict (event_id) do nothing
    returning event_id
    """,
    # Bytes do not travel in JSON: see _insert_sqlite.
    sqlite="select 1",
    rows=_ROWS,
    result={"event_id": Id},
)
_insert_sqlite = f"insert into events ({_GIVEN}, created_at) values ({', '.join('?' for _ in _ROWS)}, ?)"

_FAN_OUT: Mapping[str, ParameterKind] = {
    "event_id": "id",
    "notification_id": "id",
    "delivery_key": "text",
    "list_name": "text",
}
_fan_out = Statement(
    """
    insert into notifications (notification_id, event_id, list_name, delivery_key, type, subject, body, status,
        source_site_id, digest, created_at, due_at, cycle_started_at)
    select u.notification_id, e.event_id, u.list_name, u.delivery_key, :type, e.topic, '', 'pending',
        e.source, e.digest, e.created_at, e.created_at, e.created_at
    from {rows} join events e on e.event_id = u.event_id
    order by u.notification_id
    """,
    rows=_FAN_OUT,
)
_audit = Statement(
    """
    insert into audit (event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id, actor,
        target)
    select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
        source_site_id, source_site_id, list_name
    from notifications where event_id {any:ids}
    """,
    lists={"ids": "id"},
)
_to_index = Statement(
    """
    insert into search_backlog (notification_id, created_at, count)
    select :notification_id, created_at, :count from events where event_id = :event_id
    """
)

_stored = Statement(
    """
    select event_id, source, digest from events where event_id {any:ids}
    union all
    select event_id, source, digest from event_tombstones where event_id {any:ids}
    """,
    lists={"ids": "id"},
    result={"event_id": Id, "source": Text, "digest": LargeBinary},
)

_TYPES: Mapping[str, Any] = {
    "event_id": Id,
    "topic": Text,
    "source": Text,
    "action": Text,
    "resource": Text,
    "attributes": Json,
    "occurred_at": Moment,
    "correlation_id": Text,
    "payload": Text,
    "match_count": Integer,
    "created_at": Moment,
}
_COLUMNS = ", ".join(_TYPES)
_get = Statement(f"select {_COLUMNS} from events where event_id = :event_id", result=_TYPES)
_of_event = Statement(
    """
    select notification_id from notifications where event_id = :event_id
    order by notification_id limit :limit
    """,
    result={"notification_id": Id},
)

# A purged event has no notification left. Its tombstone keeps a late duplicate from being published again.
_expired = Statement(
    """
    select event_id, created_at as at from events
    where created_at >= :after and created_at < :cutoff
        and not exists (select 1 from notifications n where n.event_id = events.event_id)
    order by created_at limit :limit {locked}
    """,
    result={"event_id": Id, "at": Moment},
)
_bury = Statement(
    """
    insert into event_tombstones (event_id, source, digest, purged_at)
    select event_id, source, digest, :purged_at from events where event_id {any:ids}
    """,
    lists={"ids": "id"},
)
_delete = Statement("delete from events where event_id {any:ids}", lists={"ids": "id"})


def record(conn: Connection, matched: Sequence[Matched], *, now: datetime | None) -> set[str]:
    """Record the events whose id is new, with their notifications; each id at most once. The recorded ids."""
    new_ids = _insert(conn, matched, now)
    recorded = [one for one in matched if one.event.event_id in new_ids]
    rows = [(one.event.event_id, *notification) for one in recorded for notification in one.notifications]
    if rows:
        _fan_out.run(conn, rows, type=WEBHOOK_TYPE)
        _audit.run(conn, ids=[one.event.event_id for one in recorded if one.notifications])
        _to_index.run(conn, event_id=rows[0][0], notification_id=rows[0][1], count=len(rows))
    return new_ids


def stored(conn: Connection, ids: Collection[str]) -> dict[str, StoredEvent]:
    """Source and digest of those of these ids that are recorded, or were."""
    found = _stored.run(conn, ids=list(ids)) if ids else []
    return {row.event_id: StoredEvent(row.source, bytes(row.digest)) for row in found}


def get(conn: Connection, event_id: str) -> RecordedEvent | None:
    found = _get.run(conn, event_id=event_id)
    return _recorded(found[0]) if found else None


def notifications_of(conn: Connection, event_id: str, limit: int) -> list[str]:
    """The ids of the notifications that the event caused."""
    return [row.notification_id for row in _of_event.run(conn, event_id=event_id, limit=limit)]


def find(
    conn: Connection,
    *,
    topic: str | None = None,
    source: str | None = None,
    correlation_id: str | None = None,
    before: PageKey | None = None,
    limit: int,
) -> list[RecordedEvent]:
    """Events, newest first, behind `before`. One index fits each combination: the narrowest condition comes first."""
    given: dict[str, Any] = {"topic": topic, "source": source, "correlation_id": correlation_id}
    conditions = [f"{name} = :{name}" for name, value in given.items() if value is not None]
    parameters = {name: value for name, value in given.items() if value is not None}
    if before is not None:
        conditions.append("(created_at, event_id) < (:before_at, :before_id)")
        parameters |= {"before_at": before[0], "before_id": before[1]}
    where = f"where {' and '.join(conditions)}" if conditions else ""
    statement = Statement(
        f"select {_COLUMNS} from events {where} order by created_at desc, event_id desc limit :limit", result=_TYPES
    )
    return [_recorded(row) for row in statement.run(conn, **parameters, limit=limit)]


def purge(conn: Connection, span: PurgeRange) -> PurgedBatch:
    """Delete events recorded before the cutoff that have no notification any more; each leaves a tombstone."""
    found = _expired.run(conn, after=span.after, cutoff=span.cutoff, limit=span.limit)
    ids = [row.event_id for row in found]
    if ids:
        _bury.run(conn, ids=ids, purged_at=span.now)
        _delete.run(conn, ids=ids)
    return PurgedBatch(len(ids), found[-1].at if len(found) == span.limit else None)


def _insert(conn: Connection, matched: Sequence[Matched], now: datetime | None) -> set[str]:
    if conn.dialect.name == "postgresql":
        return {row.event_id for row in _insert_postgresql.run(conn, [_row(one) for one in matched], now=now)}
    assert now is not None, "SQLite takes the time from the clock"
    # The one writer sees everything that could conflict before its commit.
    taken = stored(conn, [one.event.event_id for one in matched])
    fresh = [one for one in matched if one.event.event_id not in taken]
    if fresh:
        at = to_microseconds(now)
        rows = [(*(to_microseconds(v) if isinstance(v, datetime) else v for v in _row(one)), at) for one in fresh]
        conn.exec_driver_sql(_insert_sqlite, rows)
    return {one.event.event_id for one in fresh}


def _row(one: Matched) -> tuple[Any, ...]:
    e = one.event
    return (
        e.event_id,
        e.topic,
        e.source,
        e.action,
        e.resource,
        json.dumps(dict(e.attributes), ensure_ascii=False),
        e.occurred_at,
        e.correlation_id,
        e.payload,
        len(one.notifications),
        one.digest,
    )


def _recorded(row: Row[Any]) -> RecordedEvent:
    event = Event(
        event_id=row.event_id,
        topic=row.topic,
        source=row.source,
        payload=row.payload,
        action=row.action,
        resource=row.resource,
        attributes=row.attributes,
        occurred_at=row.occurred_at,
        correlation_id=row.correlation_id,
    )
    return RecordedEvent(event, row.created_at, row.match_count)
