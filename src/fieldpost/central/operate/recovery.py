"""Recovery of a subscription since a time: parked notifications are retried, missing ones created.

It is a bulk action that retries. Its collecting step walks the events since that time, newest first, and compares them
with the subscription's filter as it is now. A matching event without a notification gets one under the derived id,
parked at first, so that the action then retries it like the others. An event whose notification was delivered and
purged is left alone. The action starts while no publisher is between its match and its commit, so every event before
its start is either recorded or not published yet.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, present, record, require
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.wake import WakeTopic
from fieldpost.central.store.events import events, missing_rows, subscriptions, topics
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import records as rows
from fieldpost.central.store.search import bulk_actions
from fieldpost.central.store.search.bulk_actions import BulkRow, BulkStep
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.bulk import RECOVER, BulkAction, BulkStatus, BulkVerb
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.events.audience import may_get
from fieldpost.core.events.event import RecordedEvent, notification_id_of
from fieldpost.core.events.filter import filter_matches
from fieldpost.core.events.subscription import Subscription, subscription_key
from fieldpost.core.ids import is_id, new_id
from fieldpost.core.notification import Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.text import check_label
from fieldpost.core.times import from_text, to_text

PAGE = 500
LAST_ID = "ffffffff-ffff-7fff-bfff-ffffffffffff"
"""Behind the id of any event."""
PREVIEW_EVENTS_MAX = 10_000
MISSING = "not created when its event was published; a recovery created it"


@dataclass(frozen=True, slots=True)
class RecoveryPreview:
    """The effects of a recovery, counted over at most `PREVIEW_EVENTS_MAX` events."""

    parked: int
    missing: int
    is_whole: bool
    """False if there are more events than were counted."""
    events_from: datetime | None
    """From when on events exist; older ones were purged."""


class Recovery(Actions):
    """Recovers subscriptions."""

    async def preview(self, actor: Actor, subscription_id: str, since: datetime) -> RecoveryPreview:
        """Count the notifications that a recovery since this time would retry and create."""
        require(actor, Role.OPERATOR, "subscription.recover", Role.SUBSCRIBER)
        owner = actor.owner_limit
        return await self._store.read(_preview, subscription_id, owner, since, now=self._store.now())

    async def start(
        self, actor: Actor, subscription_id: str, since: datetime, reason: str, *, action_id: str | None = None
    ) -> BulkAction:
        """Start the recovery. With an `action_id` chosen by the caller, a repeated call returns the first action."""
        require(actor, Role.OPERATOR, "subscription.recover", Role.SUBSCRIBER)
        check_label(reason, "reason")
        if action_id is not None and not is_id(action_id):
            raise InvalidInput("bulk.id", "action_id must be a UUID of 36 lower-case characters", field="action_id")
        now = self._clock.now()
        action = BulkAction(
            action_id=action_id or new_id(now, secrets.token_bytes(10)),
            verb=BulkVerb.RETRY,
            actor=actor.name,
            reason=reason,
            wanted={RECOVER: subscription_id, "since": to_text(since)},
            as_of=now,
            in_stages=False,
            created_at=now,
        )
        extra = {"reason": reason, "since": to_text(since), "action_id": action.action_id}
        entry = record(actor, "subscription.recover", subscription_id, now, extra)
        started = await self._store.write(_start, action, actor.owner_limit, entry, now=self._store.now())
        self._store.wake.nudge(WakeTopic.BULK_ACTIONS)
        return started


def gather_recovery(conn: Connection, found: BulkStep, at: datetime) -> tuple[BulkAction, PageKey | None]:
    """Collect from the next page of events, creating missing notifications; the action, and where to continue."""
    action = found.action
    assert action.recovers is not None, "a recovery names its subscription"
    subscription = subscriptions.get(conn, action.recovers)
    if subscription is None or not subscription.state.gets_notifications:
        return action, None
    page, end = _page(conn, action, found.gathered_to)
    wanted = _wanted(conn, subscription, page)
    present_rows = rows.without_bodies(conn, list(wanted))
    missing = {i: event_id for i, event_id in wanted.items() if i not in present_rows}
    created = missing_rows.create_parked(
        conn, subscription_key(subscription.subscription_id), subscription.name, missing, MISSING, at
    )
    parked = [n for n in present_rows.values() if n.status is Status.PARKED]
    parked += rows.without_bodies(conn, sorted(created)).values()
    bulk_actions.add_rows(
        conn,
        action.action_id,
        [
            BulkRow(position, n.notification_id, n.version, fingerprint_key(n.last_error) if n.last_error else None)
            for position, n in enumerate(parked, action.total + 1)
        ],
    )
    return replace(action, total=action.total + len(parked)), end


def _page(conn: Connection, action: BulkAction, before: PageKey | None) -> tuple[list[RecordedEvent], PageKey | None]:
    assert action.wanted is not None, "a recovery has a time"
    since = from_text(str(action.wanted["since"]))
    assert since is not None, "it was written as a time"
    page = events.since(conn, since, before or (action.as_of, LAST_ID), PAGE)
    return page, (page[-1].created_at, page[-1].event.event_id) if len(page) == PAGE else None


def _wanted(conn: Connection, subscription: Subscription, page: Collection[RecordedEvent]) -> dict[str, str]:
    """The events of a page that the subscription should have: event id by notification id."""
    known = {topic.name: topic for topic in topics.all_topics(conn)}
    return {
        notification_id_of(one.event.event_id, subscription.subscription_id): one.event.event_id
        for one in page
        if filter_matches(subscription.filter, one.event)
        and may_get(subscription, one.event, known.get(one.event.topic))
    }


def _start(
    conn: Connection, action: BulkAction, owner: str | None, entry: AuditEntry, *, now: datetime | None
) -> BulkAction:
    found = bulk_actions.get(conn, action.action_id)
    if found is not None:
        if (found.actor, found.wanted) != (action.actor, action.wanted):
            raise Conflict("bulk.other", "this id belongs to another bulk action", hint="start with a new id")
        return found
    subscriptions.keep_publishers_out(conn)
    _require_receiving(conn, action.recovers or "", owner)
    at = database_time(conn, now)
    action = replace(action, created_at=at, as_of=at, status=BulkStatus.GATHERING)
    bulk_actions.add(conn, action, [])
    audit.add(conn, [entry])
    return action


def _require_receiving(conn: Connection, subscription_id: str, owner: str | None) -> Subscription:
    subscription = _get(conn, subscription_id, owner)
    if not subscription.state.gets_notifications:
        raise Conflict(
            "subscription.state",
            f"a subscription that is {subscription.state.value} gets no notifications",
            hint="enable it first",
        )
    return subscription


def _get(conn: Connection, subscription_id: str, owner: str | None) -> Subscription:
    """The subscription; NotFound also if it is not of this owner, if one is given."""
    found = subscriptions.get(conn, subscription_id) if is_id(subscription_id) else None
    if found is not None and owner not in (None, found.owner):
        found = None
    return present(found, "subscription", subscription_id)


def _preview(
    conn: Connection, subscription_id: str, owner: str | None, since: datetime, *, now: datetime | None
) -> RecoveryPreview:
    # A disabled subscription too: enabling it asks for the time to recover from.
    subscription = _get(conn, subscription_id, owner)
    before: PageKey = (database_time(conn, now), LAST_ID)
    parked = missing = count = 0
    while count < PREVIEW_EVENTS_MAX:
        page = events.since(conn, since, before, PAGE)
        wanted = _wanted(conn, subscription, page)
        found = rows.without_bodies(conn, list(wanted))
        parked += sum(n.status is Status.PARKED for n in found.values())
        missing += len(wanted) - len(found) - missing_rows.count_tombstones(conn, set(wanted) - found.keys())
        count += len(page)
        if len(page) < PAGE:
            break
        before = (page[-1].created_at, page[-1].event.event_id)
    return RecoveryPreview(parked, missing, count < PREVIEW_EVENTS_MAX, events.oldest(conn))
