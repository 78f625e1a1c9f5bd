"""Parked notifications: retry and discard, by compare-and-set on the version that the operator saw.

An action on a whole (a submission to a list of lists) applies to its parked parts.
"""

import os
from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, event_id, require
from fieldpost.central.access.ownership import is_reachable
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import audit, wholes
from fieldpost.central.store.notifications import records as rows
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditKind, AuditStatus
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.errors import Conflict, NotFound
from fieldpost.core.ids import ENTROPY_BYTES, new_ids, parse_notification_id
from fieldpost.core.notification import Notification, Status
from fieldpost.core.wholes import folded

TransitionRule = Callable[[Notification, datetime], Transition]


class NotAsSeen(Conflict):
    """The notification is not at the version that the operator saw; `current` is its present state."""

    def __init__(self, code: str, message: str, current: Notification) -> None:
        super().__init__(code, message, hint="reload it")
        self.current = current


class NotificationActions(Actions):
    """Actions on one notification."""

    async def retry(self, actor: Actor, notification_id: str, version: int) -> Notification:
        """Return it to pending, in a new cycle for the failed targets; due now."""
        require(actor, Role.OPERATOR, "notification.retry")
        changed = await self._change(actor, notification_id, version, lifecycle.retry, AuditStatus.SUBMITTED)
        self._store.wake.set()
        return changed

    async def resend(self, actor: Actor, notification_id: str, version: int) -> Notification:
        """Send a delivered or parked webhook again under the same id, by which its receiver recognises it."""
        require(actor, Role.OPERATOR, "notification.resend", Role.SUBSCRIBER)
        changed = await self._change(actor, notification_id, version, lifecycle.resend, AuditStatus.SUBMITTED)
        self._store.wake.set()
        return changed

    async def discard(self, actor: Actor, notification_id: str, version: int) -> Notification:
        """Discard it; the row and its history stay until they are purged."""
        require(actor, Role.OPERATOR, "notification.discard")
        return await self._change(actor, notification_id, version, lifecycle.discard, AuditStatus.DISCARDED)

    async def _change(
        self, actor: Actor, notification_id: str, version: int, rule: TransitionRule, status: AuditStatus
    ) -> Notification:
        parse_notification_id(notification_id)
        entry = event_id(self._clock.now())
        return await self._store.write(
            _change, actor, notification_id, version, rule, status, entry, now=self._store.now()
        )


def _change(
    conn: Connection,
    actor: Actor,
    notification_id: str,
    version: int,
    rule: TransitionRule,
    status: AuditStatus,
    event: str,
    *,
    now: datetime | None,
) -> Notification:
    seen, changing = _get(conn, notification_id, actor.owner_limit)
    at = database_time(conn, now)
    try:
        transitions = [(one, rule(one, at)) for one in changing]
    except Conflict as error:
        raise NotAsSeen(error.code, error.message, seen) from None
    if seen.version != version or len(rows.change_many(conn, transitions, at)) < len(transitions):
        current, _ = _get(conn, notification_id)
        raise NotAsSeen(
            "notification.changed",
            f"the notification was changed by someone else and is now {current.status.value}",
            current,
        )
    changed = [one.notification_id for one in changing]
    events = [event, *new_ids(at, os.urandom(ENTROPY_BYTES * (len(changed) - 1)))]
    entries = [
        audit.NotificationEntry(event, changed_id, at, AuditKind.OPERATOR_ACTION, status, actor.name)
        for event, changed_id in zip(events, changed, strict=True)
    ]
    audit.add_for_notifications(conn, None, entries)
    return _get(conn, notification_id)[0]


def _get(
    conn: Connection, notification_id: str, owner: str | None = None
) -> tuple[Notification, Sequence[Notification]]:
    """The notification, and the rows that an action on it changes: itself, or the parked parts of a whole."""
    found = rows.get(conn, notification_id)
    if found is not None and is_reachable(conn, found.delivery_key, owner):
        return found, [found]
    whole = wholes.get(conn, notification_id) if found is None and owner is None else None
    if whole is None:
        raise NotFound("notification.unknown", "this notification does not exist")
    seen, parts = folded(*whole), whole[1]
    # Without a parked part the whole itself meets the rule, which refuses it.
    return seen, [part for part in parts if part.status is Status.PARKED] or [seen]
