"""Events that waited for a template: they become drafts once it exists, which the dispatcher renders.

Saving a template creates the first drafts in its own transaction; every node creates the rest in batches, and those
that a node left behind when it stopped.
"""

from dataclasses import replace
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from fieldpost.central.store.engine.failures import logged
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, routed, routes, subscriptions, templates, withheld
from fieldpost.central.store.events.routed import RoutedNotification
from fieldpost.central.store.events.withheld import WithheldEvent
from fieldpost.clock import Clock
from fieldpost.core.events.route import published_address, routed_id
from fieldpost.core.events.template import template_for
from fieldpost.core.wholes import part_id

WAIT_DAYS = 7.0
BATCH = 500
INTERVAL_S = 5.0

log = structlog.get_logger()


class WaitingEvents:
    """One for a central node."""

    def __init__(self, store: Store, clock: Clock, wait_days: float = WAIT_DAYS) -> None:
        self._store = store
        self._clock = clock
        self._wait = timedelta(days=wait_days)

    async def run(self) -> None:
        """Create drafts until cancelled."""
        while True:
            with logged("waiting_events"):
                await self.sweep()
            await self._clock.sleep(INTERVAL_S)

    async def sweep(self) -> int:
        """Create the drafts of all events whose template exists; how many."""
        total = 0
        while await self._store.read(has_waiting, self._wait, now=self._store.now()):
            count = await self._store.write(create_waiting, self._wait, now=self._store.now())
            if not count:
                break
            total += count
            self._store.wake.set()
        if total:
            log.info("template.events_released", count=total)
        return total


def has_waiting(conn: Connection, wait: timedelta, *, now: datetime | None) -> bool:
    """Whether events wait for a template that exists."""
    current = templates.current(conn)
    found = withheld.kinds(conn) if current else []
    since = database_time(conn, now) - wait
    return any(
        template_for(current, topic, type_) is not None and withheld.waiting(conn, topic, type_, since, 1)
        for topic, type_ in found
    )


def create_waiting(conn: Connection, wait: timedelta, *, now: datetime | None) -> int:
    """Create drafts for at most BATCH waiting events whose template exists and that are not too old; how many."""
    subscriptions.keep_publishers_out(conn)
    at = database_time(conn, now)
    current = templates.current(conn)
    found: list[WithheldEvent] = []
    for topic, type_ in withheld.kinds(conn):
        if len(found) < BATCH and template_for(current, topic, type_) is not None:
            found += withheld.waiting(conn, topic, type_, at - wait, BATCH - len(found))
    if not found:
        return 0
    recorded = events.these(conn, {one.event_id for one in found})
    known = routes.these(conn, {one.route_id for one in found})
    members = routes.members_of(conn, {route.list_name for route in known.values()})
    made: dict[str, RoutedNotification] = {}
    for one in found:
        route, event = known.get(one.route_id), recorded[one.event_id].event
        if route is None:
            continue
        id_ = routed_id(event.event_id, route.list_name, published_address(event, route))
        draft = RoutedNotification(
            notification_id=id_, event_id=event.event_id, route_id=route.route_id, list_name=route.list_name
        )
        if (named := members.get(route.list_name)) is None:
            made[id_] = draft
        for name in named or ():
            part = replace(
                draft, notification_id=part_id(id_, name), list_name=name, whole_id=id_, whole_list=route.list_name
            )
            made[part.notification_id] = part
    routed.record(conn, list(made.values()), at=at)
    withheld.remove(conn, found)
    return len(found)
