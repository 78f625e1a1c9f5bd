"""The delivery log: the notifications of a subscription with their attempts, requests and responses, newest first.

It is ordered by arrival, as the index of a subscription's notifications is: a notification that is retried keeps its
place. Responses are visible to administrators and to the owner of the subscription (DEC-67).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import present
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, subscriptions
from fieldpost.central.store.notifications import attempts
from fieldpost.central.store.notifications.attempts import AttemptRecord
from fieldpost.central.store.search import notifications
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, page_start, to_cursor
from fieldpost.core.actor import Actor
from fieldpost.core.delivery.exchange import BODY_BYTES_KEPT, without_response
from fieldpost.core.events.body import WebhookFormat, event_body
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY, Subscription
from fieldpost.core.ids import is_id
from fieldpost.core.notification import Notification, Summary
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.search.page_key import PageKey

ATTEMPTS_MAX = 10
"""How many attempts of a notification the log shows; the page of the notification shows all."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One notification of a subscription with its newest attempts, oldest first."""

    notification: Summary
    attempt_count: int
    attempts: Sequence[AttemptRecord]


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Newest first. A short page may have a next one."""

    subscription: Subscription
    deliveries: Sequence[Delivery]
    next_cursor: str | None
    as_of: datetime


class DeliveryReader:
    """Reads the delivery log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self,
        actor: Actor,
        subscription_id: str,
        wanted: Filter | None = None,
        *,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> DeliveryPage:
        """A page of the log. Raises NotFound, also for a subscription of another owner if a subscriber asks."""
        before, found = page_start(limit, cursor), None
        if is_id(subscription_id):
            chosen = replace(wanted or Filter(), subscription_id=subscription_id)
            found = await self._store.read(_page, chosen, actor.owner_limit, limit, before, now=self._store.now())
        page = present(found, "subscription", subscription_id)
        shown = [replace(one, attempts=as_seen(one.attempts, actor)) for one in page.deliveries]
        return replace(page, deliveries=shown)

    async def request_body(self, actor: Actor, n: Notification) -> str | None:
        """The first kilobyte of the request for a subscription's notification, as it would be sent now."""
        may_read = actor.may_read_bodies or actor.owner_limit is not None  # a subscriber sees only its own
        if n.event_id is None or not n.delivery_key.startswith(SUBSCRIPTION_KEY) or not may_read:
            return None
        return await self._store.read(_request_body, n)


def as_seen(found: Sequence[AttemptRecord], actor: Actor) -> tuple[AttemptRecord, ...]:
    """The attempts as this actor may see them."""
    if actor.may_read_responses:
        return tuple(found)
    return tuple(replace(one, exchanges=tuple(map(without_response, one.exchanges))) for one in found)


def _page(
    conn: Connection, wanted: Filter, owner: str | None, limit: int, before: PageKey | None, *, now: datetime | None
) -> DeliveryPage | None:
    subscription = subscriptions.get(conn, wanted.subscription_id or "")
    if subscription is None or owner not in (None, subscription.owner):
        return None
    found = notifications.find(conn, wanted, limit=limit, before=before)
    ids = [n.notification_id for n in found.notifications]
    counts, newest = attempts.counts(conn, ids), attempts.newest(conn, ids, ATTEMPTS_MAX)
    deliveries = [
        Delivery(n, counts.get(n.notification_id, 0), tuple(newest.get(n.notification_id, ())))
        for n in found.notifications
    ]
    return DeliveryPage(subscription, deliveries, to_cursor(found.end) if found.end else None, database_time(conn, now))


def _request_body(conn: Connection, n: Notification) -> str | None:
    recorded = events.get(conn, n.event_id or "")
    subscription = subscriptions.get(conn, n.delivery_key.removeprefix(SUBSCRIPTION_KEY))
    if recorded is None or subscription is None:
        return None
    format = WebhookFormat(str(subscription.settings.get("format") or WebhookFormat.STANDARD))
    return event_body(format, recorded.event, recorded.created_at)[:BODY_BYTES_KEPT].decode("utf-8", "replace")
