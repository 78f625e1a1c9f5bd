"""Ending an attempt: the row, its targets, the attempt and the audit entries, in one transaction.

Every write proves its right: a row changes only under the token it was claimed with. What comes back too late, because
another node has taken the row meanwhile, is audited as late and changes nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, Integer, Text

from fieldpost.central.store import audit
from fieldpost.central.store.statement import Kind, Statement
from fieldpost.central.store.types import Id, Moment
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.ids import NotificationId
from fieldpost.core.lifecycle import Transition


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt with its outcome and the transition decided from it, to be applied under its token."""

    notification_id: NotificationId
    token: int
    transition: Transition
    outcome: str
    error: str | None
    phase: str | None
    reply: str | None
    duration_ms: int
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One row of `attempts`, for those who look; no outcome means that it runs, or that its node died."""

    token: int
    cycle: int
    node_id: str
    is_lone: bool
    started_at: datetime
    finished_at: datetime | None
    outcome: str | None
    phase: str | None
    reply: str | None
    error: str | None
    duration_ms: int | None


_TRANSITIONS: Mapping[str, Kind] = {
    "notification_id": "id",
    "claim_token": "int",
    "status": "text",
    "retry_count": "int",
    "last_error": "text",
    "last_attempt_at": "moment",
    "next_attempt_at": "moment",
    "due_at": "moment",
    "delivered_at": "moment",
    "terminal_at": "moment",
    "held_by": "text",
    "held_reason": "text",
}
_SET = ", ".join(f"{name} = u.{name}" for name in _TRANSITIONS if name not in ("notification_id", "claim_token"))

_apply = Statement(
    f"""
    update notifications set {_SET}, version = notifications.version + 1, orphan_count = 0,
        claim_owner = null, lease_until = null
    from {{rows}}
    where notifications.notification_id = u.notification_id and notifications.claim_token = u.claim_token
        and notifications.claim_owner = :owner
    returning notifications.notification_id
    """,
    rows=_TRANSITIONS,
    result={"notification_id": Id},
)

_ENDS: Mapping[str, Kind] = {
    "notification_id": "id",
    "claim_token": "int",
    "finished_at": "moment",
    "outcome": "text",
    "phase": "text",
    "reply": "text",
    "error": "text",
    "duration_ms": "int",
}
_end = Statement(
    """
    update attempts set finished_at = u.finished_at, outcome = u.outcome, phase = u.phase, reply = u.reply,
        error = u.error, duration_ms = u.duration_ms
    from {rows}
    where attempts.notification_id = u.notification_id and attempts.claim_token = u.claim_token
        and attempts.finished_at is null
    returning attempts.notification_id
    """,
    rows=_ENDS,
    result={"notification_id": Id},
)

_TARGETS: Mapping[str, Kind] = {
    "notification_id": "id",
    "address": "text",
    "status": "text",
    "error": "text",
    "settled_at": "moment",
}
_settle = Statement(
    """
    update targets set status = u.status, error = u.error, settled_at = u.settled_at
    from {rows} where targets.notification_id = u.notification_id and targets.address = u.address
    """,
    rows=_TARGETS,
)

_history = Statement(
    """
    select claim_token as token, cycle, node_id, is_lone, started_at, finished_at, outcome, phase, reply, error,
        duration_ms
    from attempts where notification_id = :notification_id order by claim_token
    """,
    result={
        "token": BigInteger,
        "cycle": Integer,
        "node_id": Text,
        "is_lone": Boolean,
        "started_at": Moment,
        "finished_at": Moment,
        "outcome": Text,
        "phase": Text,
        "reply": Text,
        "error": Text,
        "duration_ms": BigInteger,
    },
)

_counts = Statement(
    """
    select notification_id, count(*) as attempts from attempts where notification_id {any:ids}
    group by notification_id
    """,
    lists={"ids": "id"},
    result={"notification_id": Id, "attempts": BigInteger},
)


def apply(conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]) -> set[str]:
    """Write these ends; the ids whose claim was lost, for which nothing but a late audit entry was written.

    `event_ids` are two for each end: the attempt's audit entry, and the terminal one where there is one.
    """
    mine = {row.notification_id for row in _apply.run(conn, [_transition_row(f) for f in finished], owner=owner)}
    applied = [f for f in finished if f.notification_id in mine]
    late = [f for f in finished if f.notification_id not in mine]
    # A late end is recorded on its own attempt, unless it stands there already: then this is the second run of a
    # transaction whose commit went through unheard, and there is nothing to say.
    news = {row.notification_id for row in _end.run(conn, [_end_row(f) for f in finished])}
    late = [f for f in late if f.notification_id in news]
    settle_targets(conn, [(f.notification_id, f.transition, f.finished_at) for f in applied])
    audit.add_for_notifications(conn, owner, _entries(applied, late, event_ids))
    return {f.notification_id for f in late}


def settle_targets(conn: Connection, changes: Collection[tuple[str, Transition, datetime]]) -> None:
    """Write the targets that these transitions change."""
    rows = [
        (notification_id, target.address, target.status.value, target.error, at)
        for notification_id, transition, at in changes
        for target in transition.targets
    ]
    if rows:
        _settle.run(conn, rows)


def history(conn: Connection, notification_id: str) -> list[AttemptRecord]:
    """All attempts of a notification, oldest first, over all its cycles."""
    return [AttemptRecord(**row._mapping) for row in _history.run(conn, notification_id=notification_id)]


def counts(conn: Connection, ids: Collection[str]) -> dict[str, int]:
    """How many attempts these notifications have seen; those without any are left out."""
    found = _counts.run(conn, ids=list(ids)) if ids else []
    return {row.notification_id: row.attempts for row in found}


def _entries(
    applied: Sequence[Finished], late: Sequence[Finished], event_ids: Sequence[str]
) -> list[audit.NotificationEntry]:
    ids = iter(event_ids)
    entries = []
    for f in applied:
        entries.append(_entry(next(ids), f, AuditStatus.ATTEMPTED, f.error))
        if f.transition.status.is_terminal:
            status = AuditStatus(f.transition.status.value)
            error = f.transition.last_error if status is AuditStatus.PARKED else None
            entries.append(_entry(next(ids), f, status, error))
    for f in late:
        entries.append(_entry(next(ids), f, AuditStatus.SKIPPED, f"late result, nothing changed: {f.outcome}"))
    return entries


def _entry(event_id: str, f: Finished, status: AuditStatus, error: str | None) -> audit.NotificationEntry:
    return audit.NotificationEntry(
        event_id,
        f.notification_id,
        f.finished_at,
        AuditKind.NOTIFY_DELIVER,
        status,
        SYSTEM,
        f.duration_ms if status is AuditStatus.ATTEMPTED else None,
        error,
        f.reply if status is AuditStatus.ATTEMPTED else None,
    )


def _transition_row(f: Finished) -> tuple[Any, ...]:
    t = f.transition
    return (
        f.notification_id,
        f.token,
        t.status.value,
        t.retry_count,
        t.last_error,
        t.last_attempt_at,
        t.next_attempt_at,
        t.due_at,
        t.delivered_at,
        t.terminal_at,
        t.held_by,
        t.held_reason,
    )


def _end_row(f: Finished) -> tuple[Any, ...]:
    return (f.notification_id, f.token, f.finished_at, f.outcome, f.phase, f.reply, f.error, f.duration_ms)
