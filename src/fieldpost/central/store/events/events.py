"""Recorded events: insert if absent, fan-out to notifications, search.

An event, its number of matches and its notifications are one transaction. The payload is stored once, on the event; a
notification of an event refers to it and has no body of its own.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Integer, LargeBinary, Row, Text

from fieldpost.central.store.engine.column_types import Id, Json, Moment
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.core.events.event import Event, RecordedEvent
from fieldpost.core.events.subscription import WEBHOOK_TYPE
from fieldpost.core.notification import Status
from fieldpost.core.search.event_filter import EventFilter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.times import to_microseconds

SCAN_MAX = 2_500
"""How many rows one search reads if the database cannot find the matches by an index alone."""
FIRST_ID = "00000000-0000-1000-8000-000000000000"
_TOP: PageKey = (datetime(9999, 1, 1, tzinfo=UTC), "ffffffff-ffff-ffff-ffff-ffffffffffff")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Matched:
    """An event to record, its digest, and its notifications as (notification id, delivery key, subscription name)."""

    event: Event
    digest: bytes
    notifications: Sequence[tuple[str, str, str]]
    route_count: int = 0
    """How many routes matched; `routed.record` makes their notifications."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """Source and digest of an event that is recorded already, or was and left a tombstone."""

    source: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """Matches, newest first. `end` is the position to continue from, None at the end."""

    events: tuple[RecordedEvent, ...]
    end: PageKey | None


@dataclass(frozen=True, slots=True)
class EventNotification:
    """A notification that an event caused, as far as the view of the event shows it."""

    notification_id: str
    list_name: str
    """The name of the subscription."""
    status: Status
    retry_count: int
    last_error: str | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None


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
_COLUMNS_OF_ROWS = """notification_id, event_id, list_name, delivery_key, type, subject, body, status, source_site_id,
        digest, created_at, due_at, cycle_started_at"""
_COLUMNS_OF_AUDIT = """event_id, occurred_at, ingested_at, correlation_id, channel, kind, status, source_site_id, actor,
        target"""
_fan_out_postgresql = Statement(
    f"""
    with inserted as (
        insert into notifications ({_COLUMNS_OF_ROWS})
        select u.notification_id, e.event_id, u.list_name, u.delivery_key, :type, e.topic, '', 'pending', e.source,
            e.digest, e.created_at, e.created_at, e.created_at
        from {{rows}} join events e on e.event_id = u.event_id
        order by u.notification_id
        returning notification_id, created_at, source_site_id, list_name
    ),
    to_index as (
        insert into search_backlog (notification_id, created_at, count)
        select (array_agg(notification_id))[1], created_at, count(*) from inserted group by created_at
    )
    insert into audit ({_COLUMNS_OF_AUDIT})
    select notification_id, created_at, created_at, notification_id, 'notification', 'notify_send', 'submitted',
        source_site_id, source_site_id, list_name
    from inserted
    """,
    # Bytes do not travel in JSON, and values of the driver are quicker: see _fan_out_sqlite.
    sqlite="select 1",
    rows=_FAN_OUT,
)
_insert_rows_sqlite = f"""
    insert into notifications ({_COLUMNS_OF_ROWS})
    values (?, ?, ?, ?, '{WEBHOOK_TYPE}', ?, '', 'pending', ?, ?, ?, ?, ?)
"""
_audit_sqlite = f"""
    insert into audit ({_COLUMNS_OF_AUDIT})
    values (?, ?, ?, ?, 'notification', 'notify_send', 'submitted', ?, ?, ?)
"""
_to_index_sqlite = Statement(
    "insert into search_backlog (notification_id, created_at, count) values (:id, :at, :count)"
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
_since = Statement(
    f"""
    select {_COLUMNS.replace("payload", "'' as payload")} from events
    where created_at >= :since and (created_at, event_id) < (:at, :event_id)
    order by created_at desc, event_id desc limit :limit
    """,
    result=_TYPES,
)
_oldest = Statement("select created_at from events order by created_at limit 1", result={"created_at": Moment})
_these = Statement(f"select {_COLUMNS} from events where event_id {{any:ids}}", lists={"ids": "id"}, result=_TYPES)
_SUMMARY = ", ".join("'' as payload" if name == "payload" else name for name in _TYPES)
_of_event = Statement(
    """
    select notification_id, list_name, status, retry_count, last_error, next_attempt_at, delivered_at
    from notifications where event_id = :event_id and notification_id > :after
    order by notification_id limit :limit
    """,
    result={
        "notification_id": Id,
        "list_name": Text,
        "status": Text,
        "retry_count": Integer,
        "last_error": Text,
        "next_attempt_at": Moment,
        "delivered_at": Moment,
    },
)
_counts = Statement(
    "select status, count(*) as size from notifications where event_id = :event_id group by status order by status",
    result={"status": Text, "size": Integer},
)

_NARROWEST_FIRST = ("correlation_id", "resource", "source", "topic")
_finders = {
    name: Statement(
        f"""
        select {_SUMMARY} from events where {f"{name} = :{name} and" if name else ""}
            created_at >= :since and (created_at, event_id) < (:at, :id)
        order by created_at desc, event_id desc limit :scan
        """,
        result=_TYPES,
    )
    for name in (None, *_NARROWEST_FIRST)
}


def record(conn: Connection, matched: Sequence[Matched], *, now: datetime | None) -> set[str]:
    """Record the events whose id is new, with their notifications; each id at most once. The recorded ids."""
    new_ids = _insert(conn, matched, now)
    recorded = [one for one in matched if one.event.event_id in new_ids]
    if conn.dialect.name == "postgresql":
        rows = [(one.event.event_id, *notification) for one in recorded for notification in one.notifications]
        if rows:
            _fan_out_postgresql.run(conn, rows, type=WEBHOOK_TYPE)
    elif now is not None and any(one.notifications for one in recorded):
        _fan_out_sqlite(conn, recorded, now)
    return new_ids


def stored(conn: Connection, ids: Collection[str]) -> dict[str, StoredEvent]:
    """Source and digest of those of these ids that are recorded, or were."""
    found = _stored.run(conn, ids=list(ids)) if ids else []
    return {row.event_id: StoredEvent(row.source, bytes(row.digest)) for row in found}


def get(conn: Connection, event_id: str) -> RecordedEvent | None:
    found = _get.run(conn, event_id=event_id)
    return _recorded(found[0]) if found else None


def these(conn: Connection, ids: Collection[str]) -> dict[str, RecordedEvent]:
    """Those of these events that are recorded, by id."""
    found = _these.run(conn, ids=list(ids)) if ids else []
    return {row.event_id: _recorded(row) for row in found}


def since(conn: Connection, since: datetime, before: PageKey, limit: int) -> list[RecordedEvent]:
    """Events recorded at or after a time and before a position, newest first, without their payloads."""
    at, event_id = before
    return [_recorded(row) for row in _since.run(conn, since=since, at=at, event_id=event_id, limit=limit)]


def oldest(conn: Connection) -> datetime | None:
    """When the oldest event was recorded."""
    found = _oldest.run(conn)
    return found[0].created_at if found else None


def notifications_of(conn: Connection, event_id: str, limit: int, after: str = FIRST_ID) -> list[EventNotification]:
    """The notifications that the event caused, in the order of their ids, behind `after`."""
    found = _of_event.run(conn, event_id=event_id, limit=limit, after=after)
    return [
        EventNotification(
            row.notification_id,
            row.list_name,
            Status(row.status),
            row.retry_count,
            row.last_error,
            row.next_attempt_at,
            row.delivered_at,
        )
        for row in found
    ]


def counts_of(conn: Connection, event_id: str) -> dict[str, int]:
    """The numbers of the event's notifications by status."""
    return {row.status: row.size for row in _counts.run(conn, event_id=event_id)}


def find(conn: Connection, wanted: EventFilter, *, limit: int, before: PageKey | None = None) -> FoundEvents:
    """Up to `limit` matches older than `before`, newest first; fewer, with an `end`, when matches are rare.

    The narrowest condition selects the index; further ones are checked on at most SCAN_MAX rows of it.
    """
    given = {name: value for name in _NARROWEST_FIRST if (value := getattr(wanted, name)) is not None}
    indexed = next(iter(given), None)
    scan = limit + 1 if len(given) < 2 else SCAN_MAX
    start = min(before or _TOP, (wanted.until, FIRST_ID) if wanted.until is not None else _TOP)
    scope: dict[str, Any] = {"since": wanted.since or _BEGINNING, "at": start[0], "id": start[1], "scan": scan}
    rows = _finders[indexed].run(conn, **scope, **({indexed: given[indexed]} if indexed else {}))
    found = [row for row in rows if all(getattr(row, name) == value for name, value in given.items())]
    shown = tuple(map(_recorded, found[:limit]))
    if len(found) > limit:
        return FoundEvents(shown, (shown[-1].created_at, shown[-1].event.event_id))
    return FoundEvents(shown, (rows[-1].created_at, rows[-1].event_id) if len(rows) == scan else None)


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


def _fan_out_sqlite(conn: Connection, recorded: Sequence[Matched], now: datetime) -> None:
    at = to_microseconds(now)
    rows, entries = [], []
    for one in recorded:
        e = one.event
        for notification_id, key, name in one.notifications:
            rows.append((notification_id, e.event_id, name, key, e.topic, e.source, one.digest, at, at, at))
            entries.append((notification_id, at, at, notification_id, e.source, e.source, name))
    conn.exec_driver_sql(_insert_rows_sqlite, rows)
    conn.exec_driver_sql(_audit_sqlite, entries)
    _to_index_sqlite.run(conn, id=rows[0][0], at=now, count=len(rows))


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
        len(one.notifications) + one.route_count,
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
