"""Events that a route matched without making a notification: no template yet, or suppressed by its cooldown."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Integer, Row, Text

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.schema.event_tables import IS_UNMATCHED
from fieldpost.core.events.audience import RESERVED


class WithheldReason(StrEnum):
    NO_TEMPLATE = "no_template"
    COOLDOWN = "cooldown"


@dataclass(frozen=True, slots=True)
class WithheldEvent:
    """One event that one route withholds."""

    event_id: str
    route_id: str
    topic: str
    type: str
    """Of the list."""
    reason: WithheldReason
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WithheldGroup:
    """How many events wait for one template, and since when."""

    topic: str
    type: str
    count: int
    oldest: datetime


_ROW = {"event_id": Id, "route_id": Id, "topic": Text, "type": Text, "reason": Text, "created_at": Moment}
_COLUMNS = ", ".join(_ROW)
_add = Statement(
    """
    insert into withheld_events (event_id, route_id, topic, type, reason, created_at)
    select u.event_id, u.route_id, e.topic, u.type, u.reason, e.created_at
    from {rows} join events e on e.event_id = u.event_id
    where true order by u.event_id, u.route_id
    on conflict (event_id, route_id) do nothing
    """,
    rows={"event_id": "id", "route_id": "id", "type": "text", "reason": "text"},
)
_of_event = Statement(
    f"select {_COLUMNS} from withheld_events where event_id = :event_id order by route_id", result=_ROW
)
_reasons = Statement(
    """
    select event_id, reason, count(*) as size from withheld_events
    where event_id {any:ids} group by event_id, reason
    """,
    lists={"ids": "id"},
    result={"event_id": Id, "reason": Text, "size": Integer},
)
_groups = Statement(
    """
    select topic, type, count(*) as size, min(created_at) as oldest from withheld_events
    where reason = 'no_template' and created_at >= :since group by topic, type order by topic, type
    """,
    result={"topic": Text, "type": Text, "size": Integer, "oldest": Moment},
)
_waiting = Statement(
    f"""
    select {_COLUMNS} from withheld_events
    where reason = 'no_template' and topic = :topic and type = :type and created_at >= :since
    order by created_at, event_id limit :limit
    """,
    result=_ROW,
)
# Walks the topics by their index: one probe per topic, however many events it has.
_unmatched = Statement(
    f"""
    with recursive walk as (
        select (select topic from events where {IS_UNMATCHED} order by topic limit 1) as topic
        union all
        select (select e.topic from events e where {IS_UNMATCHED} and e.topic > walk.topic order by e.topic limit 1)
        from walk where walk.topic is not null
    )
    select topic, (
        select e.created_at from events e where {IS_UNMATCHED} and e.topic = walk.topic
        order by e.created_at desc limit 1
    ) as last_at
    from walk where topic is not null
    """,
    result={"topic": Text, "last_at": Moment},
)
_next_kind = Statement(
    """
    select topic, type from withheld_events where reason = 'no_template' and (topic, type) > (:topic, :type)
    order by topic, type limit 1
    """,
    result={"topic": Text, "type": Text},
)
_remove = Statement(
    """
    delete from withheld_events where exists (
        select 1 from {rows} where u.event_id = withheld_events.event_id and u.route_id = withheld_events.route_id
    )
    """,
    rows={"event_id": "id", "route_id": "id"},
)


def add(conn: Connection, rows: Collection[tuple[str, str, str, WithheldReason]]) -> None:
    """Record (event id, route id, type of the list, reason)."""
    if rows:
        _add.run(conn, [(event_id, route_id, type_, reason.value) for event_id, route_id, type_, reason in rows])


def of_event(conn: Connection, event_id: str) -> list[WithheldEvent]:
    return [_withheld(row) for row in _of_event.run(conn, event_id=event_id)]


def reasons(conn: Connection, ids: Collection[str]) -> dict[str, dict[WithheldReason, int]]:
    """By how many routes these events are withheld, by event and reason."""
    found: dict[str, dict[WithheldReason, int]] = {}
    for row in _reasons.run(conn, ids=list(ids)) if ids else ():
        found.setdefault(row.event_id, {})[WithheldReason(row.reason)] = row.size
    return found


def kinds(conn: Connection) -> list[tuple[str, str]]:
    """The topics and list types that events wait for a template of; one index probe each."""
    found: list[tuple[str, str]] = []
    after = ("", "")
    while rows := _next_kind.run(conn, topic=after[0], type=after[1]):
        after = (rows[0].topic, rows[0].type)
        found.append(after)
    return found


def groups(conn: Connection, since: datetime) -> list[WithheldGroup]:
    """The events recorded since a time that wait for a template, by topic and list type."""
    return [WithheldGroup(row.topic, row.type, row.size, row.oldest) for row in _groups.run(conn, since=since)]


def waiting(conn: Connection, topic: str, type_: str, since: datetime, limit: int) -> list[WithheldEvent]:
    """Events recorded since a time that wait for a template of this topic and list type, oldest first."""
    return [_withheld(row) for row in _waiting.run(conn, topic=topic, type=type_, since=since, limit=limit)]


def unmatched_topics(conn: Connection, since: datetime) -> list[str]:
    """Topics with events since a time that neither a route nor a subscription matched; central's own are left out."""
    found = _unmatched.run(conn)
    return [row.topic for row in found if row.last_at >= since and not row.topic.startswith(RESERVED)]


def remove(conn: Connection, found: Sequence[WithheldEvent]) -> None:
    if found:
        _remove.run(conn, [(one.event_id, one.route_id) for one in found])


def _withheld(row: Row[Any]) -> WithheldEvent:
    return WithheldEvent(row.event_id, row.route_id, row.topic, row.type, WithheldReason(row.reason), row.created_at)
