"""Parked notifications: retry and discard, by compare-and-set on the version that the operator saw."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, event_id, require
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import records as rows
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditKind, AuditStatus
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.errors import Conflict, NotFound
from fieldpost.core.ids import parse_notification_id
from fieldpost.core.notification import Notification

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
        require(actor, Role.OPERATOR, "notification.resend")
        changed = await self._change(actor, notification_id, version, lifecycle.resend, AuditStatus.SUBMITTED)
        self._store.wake.set()
        return changed

    async def discard(self, actor: Actor, notification_id: str, version: int) -> Notification:
        """Give it up; the row and its history stay until they are purged."""
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
    seen = _get(conn, notification_id)
    at = database_time(conn, now)
    try:
        transition = rule(seen, at)
    except Conflict as error:
        raise NotAsSeen(error.code, error.message, seen) from None
    if seen.version != version or not rows.change(conn, seen, transition, at):
        current = _get(conn, notification_id)
        raise NotAsSeen(
            "notification.changed",
            f"the notification was changed by someone else and is now {current.status.value}",
            current,
        )
    entry = audit.NotificationEntry(event, notification_id, at, AuditKind.OPERATOR_ACTION, status, actor.name)
    audit.add_for_notifications(conn, None, [entry])
    return _get(conn, notification_id)


def _get(conn: Connection, notification_id: str) -> Notification:
    found = rows.get(conn, notification_id)
    if found is None:
        raise NotFound("notification.unknown", "this notification does not exist")
    return found
