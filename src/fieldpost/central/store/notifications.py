"""Looking at notifications, and operators' changes to them. Arrivals, claims and attempts have their own modules."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, and_, or_, select, update

from fieldpost.central.store import rows as to_core
from fieldpost.central.store.attempts import settle_targets
from fieldpost.central.store.claims import targets_of
from fieldpost.central.store.tables import notifications
from fieldpost.core.explain import Claim
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


def claim_of(conn: Connection, notification_id: str) -> Claim:
    """Who holds the row, if anybody does."""
    n = notifications.c
    query = select(n.claim_owner, n.lease_until, n.orphan_count).where(n.notification_id == notification_id)
    row = conn.execute(query).first()
    return Claim(*row) if row is not None else Claim(None, None)


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


def held_since_before(conn: Connection, cutoff: datetime, limit: int) -> list[Notification]:
    """Held rows, in nobody's hands, whose cycle began before the cutoff; with their targets."""
    n = notifications.c
    found = conn.execute(
        select(*_COLUMNS)
        .where(n.held_by.is_not(None), n.cycle_started_at < cutoff, n.claim_owner.is_(None))
        .order_by(n.held_by, n.due_at)
        .limit(limit)
    ).all()
    targets = targets_of(conn, [row.notification_id for row in found])
    return [to_core.notification(row, targets.get(row.notification_id, ())) for row in found]


def change(conn: Connection, seen: Notification, transition: Transition, now: datetime) -> bool:
    """A transition outside a claim (an operator's, or the end of a long hold), if the row is still as seen."""
    n = notifications.c
    is_new_cycle = transition.cycle != seen.cycle
    changed = (
        update(notifications)
        .where(
            n.notification_id == seen.notification_id,
            n.status == seen.status.value,
            n.version == seen.version,
            n.claim_owner.is_(None),
        )
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
            held_by=transition.held_by,
            held_reason=transition.held_reason,
            version=seen.version + 1,
        )
    )
    if conn.execute(changed).rowcount != 1:
        return False
    settle_targets(conn, [(seen.notification_id, transition, now)])
    return True
