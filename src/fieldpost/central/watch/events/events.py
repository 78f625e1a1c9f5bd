"""Queries of events and topics."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, routes, topics, withheld
from fieldpost.central.store.events.events import FIRST_ID, EventNotification
from fieldpost.central.store.events.withheld import WithheldReason
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, page_start, to_cursor
from fieldpost.core.actor import Actor
from fieldpost.core.errors import Denied, NotFound
from fieldpost.core.events.audience import ALL_OWNERS, may_read
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import is_id
from fieldpost.core.search.event_filter import EventFilter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.text import is_label

__all__ = ["EventDetail", "EventNotification", "EventPage", "EventReader", "RecordedEvent", "WithheldFrom"]


@dataclass(frozen=True, slots=True)
class EventPage:
    """Newest first; `next_cursor` is None on the last page. A short page may have a next one."""

    events: tuple[RecordedEvent, ...]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class WithheldFrom:
    """A route that made no notification of an event, and why: it has no template yet, or its cooldown runs."""

    route_id: str
    route_name: str
    list_name: str
    list_type: str
    reason: WithheldReason


@dataclass(frozen=True, slots=True)
class EventDetail:
    """One event and a page of the notifications that it caused, with their numbers by status."""

    recorded: RecordedEvent
    payload: str | None
    """None unless the reader may see it."""
    counts: Mapping[str, int]
    notifications: tuple[EventNotification, ...]
    withheld: tuple[WithheldFrom, ...]
    """The routes that matched the event and made no notification of it."""
    next_cursor: str | None
    as_of: datetime


class EventReader:
    """Reads events and topics."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, actor: Actor, wanted: EventFilter | None = None, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> EventPage:
        """A page; of a publisher's own events if a publisher asks. Raises InvalidInput for a bad limit or cursor."""
        wanted = wanted or EventFilter()
        if (own := actor.own_source) is not None:
            if wanted.source not in (None, own):
                raise Denied("access.own", f"a publisher reads only its own events, those of {own!r}")
            wanted = replace(wanted, source=own)
        return await self._store.read(_page, wanted, limit, page_start(limit, cursor), now=self._store.now())

    async def detail(
        self, actor: Actor, event_id: str, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> EventDetail:
        """The event with a page of its notifications. Raises NotFound, also for others' events if a publisher asks.

        The payload is visible to operators, administrators and the event's publisher.
        """
        after = page_start(limit, cursor)
        found = None
        if is_id(event_id):
            found = await self._store.read(_detail, event_id, limit, after, now=self._store.now())
        if found is None or actor.own_source not in (None, found.recorded.event.source):
            raise NotFound("event.unknown", "this event does not exist")
        is_readable = actor.may_read_bodies or actor.own_source is not None
        return found if is_readable else replace(found, payload=None)

    async def topics(self, owner: str | None = None) -> list[Topic]:
        """All topics by name, archived ones included; with an owner, those that the owner may subscribe to."""
        found = await self._store.read(topics.all_topics)
        return [_as_seen(topic, owner) for topic in found if owner is None or may_read(owner, topic)]

    async def topic(self, name: str, owner: str | None = None) -> Topic:
        """The topic of this name. Raises NotFound, also if the given owner may not subscribe to it."""
        found = await self._store.read(topics.get, name) if is_label(name) else None
        if found is not None and (owner is None or may_read(owner, found)):
            return _as_seen(found, owner)
        raise NotFound("topic.unknown", f"topic {name[:64]!r} does not exist")


def _as_seen(topic: Topic, owner: str | None) -> Topic:
    """The topic without the names of other owners."""
    return topic if owner is None else replace(topic, owners=tuple(o for o in topic.owners if o in (owner, ALL_OWNERS)))


def _page(
    conn: Connection, wanted: EventFilter, limit: int, before: PageKey | None, *, now: datetime | None
) -> EventPage:
    found = events.find(conn, wanted, limit=limit, before=before)
    return EventPage(found.events, to_cursor(found.end) if found.end else None, database_time(conn, now))


def _detail(
    conn: Connection, event_id: str, limit: int, after: PageKey | None, *, now: datetime | None
) -> EventDetail | None:
    recorded = events.get(conn, event_id)
    if recorded is None:
        return None
    found = events.notifications_of(conn, event_id, limit + 1, after[1] if after else FIRST_ID)
    shown = tuple(found[:limit])
    return EventDetail(
        recorded,
        recorded.event.payload,
        events.counts_of(conn, event_id),
        shown,
        _withheld(conn, event_id),
        to_cursor((recorded.created_at, shown[-1].notification_id)) if len(found) > limit else None,
        database_time(conn, now),
    )


def _withheld(conn: Connection, event_id: str) -> tuple[WithheldFrom, ...]:
    found = withheld.of_event(conn, event_id)
    named = routes.these(conn, [one.route_id for one in found])
    return tuple(
        WithheldFrom(one.route_id, route.name, route.list_name, one.type, one.reason)
        for one in found
        if (route := named.get(one.route_id)) is not None
    )
