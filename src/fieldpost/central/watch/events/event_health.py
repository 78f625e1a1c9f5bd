"""The state of events that the judgement of health reads: topics nobody gets, missing templates, silent relays."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store.events import outbox_reports, routes, subscriptions, templates, topics, withheld
from fieldpost.central.store.events.outbox_reports import OutboxReport
from fieldpost.central.store.events.withheld import WithheldGroup
from fieldpost.core.events.route import topics_of
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.template import template_for

UNMATCHED_WITHIN = timedelta(days=1)
EXPIRY_SHOWN = timedelta(hours=1)
"""How long before its end a token of a receiver is shown; libraries of the ZGW APIs make tokens for twelve hours."""
RELAY_SILENT = timedelta(minutes=5)
"""A relay reports once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHealth:
    """Empty by default."""

    unmatched: Sequence[str] = ()
    """Topics whose events of the last day matched neither a route nor a subscription."""
    waiting: Sequence[WithheldGroup] = ()
    """Events that wait for a template."""
    without_template: Sequence[str] = ()
    """Routes that match a topic without a template for their list."""
    outboxes: Sequence[OutboxReport] = ()
    expiring: Sequence[Subscription] = ()
    """Subscriptions whose token for the receiver expired, or soon does; the first to expire first."""


def read_event_health(conn: Connection, now: datetime, wait: timedelta) -> EventHealth:
    """The state as of now; events older than `wait` do not get a notification any more and are left out."""
    found = routes.active(conn)
    types = routes.types_needed(conn, {route.list_name for route in found})
    known, current = topics.all_topics(conn) if found else [], templates.current(conn)
    return EventHealth(
        unmatched=withheld.unmatched_topics(conn, now - UNMATCHED_WITHIN),
        waiting=[
            group
            for group in withheld.groups(conn, now - wait)
            if template_for(current, group.topic, group.type) is None
        ],
        without_template=[
            route.name
            for route in found
            if any(
                template_for(current, name, type_) is None
                for name in topics_of(route, known)
                for type_ in types[route.list_name]
            )
        ],
        outboxes=outbox_reports.all_reports(conn),
        expiring=subscriptions.expiring(conn, now + EXPIRY_SHOWN),
    )
