"""Queries of the results of events by the application that published them, and of the outboxes of applications."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import outbox_reports, results
from fieldpost.central.store.events.outbox_reports import OutboxReport
from fieldpost.central.store.events.results import EndedNotification, EventResult, TargetResult
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, page_start, to_cursor
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import EVENTS_MAX
from fieldpost.core.events.result import EventState
from fieldpost.core.ids import is_id
from fieldpost.core.search.page_key import PageKey

__all__ = ["EndedNotification", "EventResult", "EventResultReader", "EventResults", "OutboxReport", "TargetResult"]


@dataclass(frozen=True, slots=True)
class EventResults:
    """States of events, and a page of their notifications that ended."""

    events: tuple[EventResult, ...]
    notifications: tuple[EndedNotification, ...]
    next_cursor: str | None
    as_of: datetime


class EventResultReader:
    """Reads results of events, always those of one source."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def since(
        self, source: str, ended_since: datetime, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> EventResults:
        """Notifications that ended at or after a time, oldest first, and the present states of their events.

        A notification's time is set shortly before it becomes visible, so repeat a query with an overlap.
        """
        after = page_start(limit, cursor) or (ended_since, results.FIRST[1])
        return await self._store.read(_since, source, after, limit, now=self._store.now())

    async def of(
        self, source: str, event_ids: Sequence[str], *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> EventResults:
        """The states of these events, and their notifications that ended."""
        if not 1 <= len(event_ids) <= EVENTS_MAX:
            raise InvalidInput(
                "event.too_many",
                f"event_ids must have 1 to {EVENTS_MAX} ids, got {len(event_ids)}",
                field="event_ids",
            )
        for number, event_id in enumerate(event_ids):
            if not is_id(event_id):
                rule = "must be a UUID of 36 lower-case characters with dashes"
                raise InvalidInput("event.bad_id", f"event_ids[{number}] {rule}", field=f"event_ids[{number}]")
        after = page_start(limit, cursor) or results.FIRST
        ids = list(dict.fromkeys(event_ids))
        return await self._store.read(_of, source, ids, after, limit, now=self._store.now())

    async def outboxes(self) -> list[OutboxReport]:
        """The outboxes of all applications, as their relays last reported them."""
        return await self._store.read(outbox_reports.all_reports)


def _since(conn: Connection, source: str, after: PageKey, limit: int, *, now: datetime | None) -> EventResults:
    as_of = database_time(conn, now)
    ended, end = results.ended_since(conn, source, after, limit)
    states = results.states(conn, source, list(dict.fromkeys(one.event_id for one in ended)))
    return EventResults(tuple(states), tuple(ended), to_cursor(end) if end else None, as_of)


def _of(
    conn: Connection, source: str, ids: Sequence[str], after: PageKey, limit: int, *, now: datetime | None
) -> EventResults:
    as_of = database_time(conn, now)
    states = results.states(conn, source, ids)
    own = [one.event_id for one in states if one.state is not EventState.UNKNOWN]
    ended, end = results.ended_of(conn, own, after[1], limit)
    return EventResults(tuple(states), tuple(ended), to_cursor(end) if end else None, as_of)
