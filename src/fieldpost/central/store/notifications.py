"""Looking at notifications, and operators' changes to them. Arrivals, claims and attempts have their own modules."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, or_, select, update

from fieldpost.central.store import rows as to_core
from fieldpost.central.store.attempts import settle_targets
from fieldpost.central.store.claims import targets_of
from fieldpost.central.store.tables import notifications
from fieldpost.core.lifecycle import Transition
from fieldpost.core.notification import Notification, Status

_COLUMNS = [notifications.c[name] for name in to_core.NOTIFICATION_TYPES]


def get(conn: Connection, notification_id: str, site: str | None = None) -> Notification | None:
    """The notification with its targets; of another site than the one given there is none."""
    query = select(*_COLUMNS).where(notifications.c.notification_id == notification_id)
    if site is not None:
        query = query.where(notifications.c.source_site_id == site)
    row = conn.execute(query).first()
    if row is None:
        return None
    return to_core.notification(row, targets_of(conn, [notification_id]).get(notification_id, ()))


def newest(
    conn: Connection,
    *,
    limit: int,
    before: tuple[datetime, str] | None = None,
    statuses: Sequence[Status] = (),
    list_name: str | None = None,
    site: str | None = None,
) -> list[Notification]:
    """A page of notifications without targets, newest first; `before` is the last of the page above."""
    query = select(*_COLUMNS).order_by(notifications.c.created_at.desc(), notifications.c.notification_id.desc())
    if before is not None:
        at, last = before
        query = query.where(
            or_(
                notifications.c.created_at < at,
                and_(notifications.c.created_at == at, notifications.c.notification_id < last),
            )
        )
    if statuses:
        query = query.where(notifications.c.status.in_([status.value for status in statuses]))
    if list_name is not None:
        query = query.where(notifications.c.list_name == list_name)
    if site is not None:
        query = query.where(notifications.c.source_site_id == site)
    return [to_core.notification(row) for row in conn.execute(query.limit(limit))]


def change(conn: Connection, seen: Notification, transition: Transition, now: datetime) -> bool:
    """An operator's transition, if the row is still as he saw it; whether it was."""
    n = notifications.c
    is_new_cycle = transition.cycle != seen.cycle
    changed = (
        update(notifications)
        .where(n.notification_id == seen.notification_id, n.status == seen.status.value, n.version == seen.version)
        .values(
            status=transition.status.value,
            retry_count=transition.retry_count,
            cycle=transition.cycle,
            cycle_started_at=now if is_new_cycle else seen.cycle_started_at,
            last_error=transition.last_error,
            next_attempt_at=transition.next_attempt_at,
            due_at=transition.due_at,
            delivered_at=transition.delivered_at,
            terminal_at=transition.terminal_at,
            version=seen.version + 1,
        )
    )
    if conn.execute(changed).rowcount != 1:
        return False
    settle_targets(conn, [(seen.notification_id, transition, now)])
    return True
