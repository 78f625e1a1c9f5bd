"""Reading notifications, and changing them outside a claim."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select, text

from fieldpost.central.store.engine.column_types import Id
from fieldpost.central.store.engine.statement import ParameterKind, Statement
from fieldpost.central.store.notifications.targets import settle_targets, targets_of
from fieldpost.central.store.schema import rows as to_core
from fieldpost.central.store.schema.notification_tables import IS_AGING, notifications
from fieldpost.core.delivery.explain import ClaimState
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.notification import Notification

_COLUMNS = [notifications.c[name] for name in to_core.NOTIFICATION_TYPES]

_without_bodies = Statement(
    f"""
    select {to_core.NOTIFICATION_COLUMNS.replace(" body,", " '' as body,")}
    from notifications where notification_id {{any:ids}}
    """,
    lists={"ids": "id"},
    result=to_core.NOTIFICATION_TYPES,
)

_CHANGE: Mapping[str, ParameterKind] = {
    "status": "text",
    "retry_count": "int",
    "cycle": "int",
    "last_error": "text",
    "next_attempt_at": "moment",
    "due_at": "moment",
    "delivered_at": "moment",
    "terminal_at": "moment",
    "held_by": "text",
    "held_reason": "text",
    "is_timed": "bool",
}
_of_transition = attrgetter(*(name for name in _CHANGE if name != "status"))
_change_many = Statement(
    f"""
    update notifications set {", ".join(f"{name} = u.{name}" for name in _CHANGE)},
        cycle_started_at = case when u.cycle = notifications.cycle then cycle_started_at else :at end,
        version = notifications.version + 1
    from {{rows}} where notifications.notification_id = u.notification_id and notifications.status = u.seen_status
        and notifications.version = u.seen_version and notifications.claim_owner is null
    returning notifications.notification_id
    """,
    rows={"notification_id": "id", "seen_status": "text", "seen_version": "int", **_CHANGE},
    result={"notification_id": Id},
)


def get(conn: Connection, notification_id: str, site: str | None = None) -> Notification | None:
    """The notification with its targets; None if it is of another site than the given one."""
    query = select(*_COLUMNS).where(notifications.c.notification_id == notification_id)
    if site is not None:
        query = query.where(notifications.c.source_site_id == site)
    row = conn.execute(query).first()
    if row is None:
        return None
    return to_core.notification(row, targets_of(conn, [notification_id]).get(notification_id, ()))


def claim_of(conn: Connection, notification_id: str) -> ClaimState:
    """The claim on the row, if any."""
    n = notifications.c
    query = select(n.claim_owner, n.lease_until, n.orphan_count).where(n.notification_id == notification_id)
    row = conn.execute(query).first()
    return ClaimState(*row) if row is not None else ClaimState(None, None)


def without_bodies(conn: Connection, ids: Sequence[str]) -> dict[str, Notification]:
    """The existing ones of these notifications, with targets but with empty bodies, which may be large."""
    found = _without_bodies.run(conn, ids=ids) if ids else []
    targets = targets_of(conn, [row.notification_id for row in found])
    return {row.notification_id: to_core.notification(row, targets.get(row.notification_id, ())) for row in found}


def held_since_before(conn: Connection, cutoff: datetime, limit: int) -> list[Notification]:
    """Unclaimed rows behind a breaker whose cycle started before the cutoff, with their targets. A pause has no end."""
    n = notifications.c
    found = conn.execute(
        select(*_COLUMNS)
        .where(text(IS_AGING), n.cycle_started_at < cutoff, n.claim_owner.is_(None))
        .order_by(n.cycle_started_at)
        .limit(limit)
    ).all()
    targets = targets_of(conn, [row.notification_id for row in found])
    return [to_core.notification(row, targets.get(row.notification_id, ())) for row in found]


def change(conn: Connection, seen: Notification, transition: Transition, now: datetime) -> bool:
    """Apply an operator's transition, or the end of a long hold, if the row is still as seen."""
    return bool(change_many(conn, [(seen, transition)], now))


def change_many(conn: Connection, changes: Sequence[tuple[Notification, Transition]], now: datetime) -> set[str]:
    """`change` for several rows; the ids of the rows that changed."""
    if not changes:
        return set()
    rows = [(n.notification_id, n.status.value, n.version, *_change(t)) for n, t in changes]
    changed = {row.notification_id for row in _change_many.run(conn, rows, at=now)}
    settle_targets(conn, [(n.notification_id, t, now) for n, t in changes if n.notification_id in changed])
    return changed


def _change(t: Transition) -> tuple[Any, ...]:
    return t.status.value, *_of_transition(t)
