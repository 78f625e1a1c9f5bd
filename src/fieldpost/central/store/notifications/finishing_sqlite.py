"""Ending attempts on SQLite, which has no writing common table expressions: one statement per table."""

from collections.abc import Sequence

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications.attempts import ClaimKey, Finished
from fieldpost.central.store.notifications.finishing_columns import (
    CLAIM,
    CLAIM_TYPES,
    END,
    IS_ITS_ATTEMPT,
    IS_OWNED,
    SET_END,
    SET_ROW,
    TRANSITION,
    end_row,
    transition_row,
)
from fieldpost.central.store.notifications.targets import settle_targets
from fieldpost.core.audit import SYSTEM, AuditKind, AuditStatus
from fieldpost.core.notification import Status

_write_rows = Statement(
    f"""
    update notifications set {SET_ROW} from {{rows}} where {IS_OWNED}
    returning notifications.notification_id, notifications.claim_token
    """,
    rows={**CLAIM, **TRANSITION},
    result=CLAIM_TYPES,
)
_end_attempts = Statement(
    f"""
    update attempts set {SET_END}, exchanges = u.exchanges_text from {{rows}} where {IS_ITS_ATTEMPT}
    returning attempts.notification_id, attempts.claim_token
    """,
    rows={**CLAIM, **END},
    result=CLAIM_TYPES,
)


def write(
    conn: Connection, owner: str, finished: Sequence[Finished], event_ids: Sequence[str]
) -> tuple[set[ClaimKey], set[ClaimKey]]:
    """The claims whose row this owner still had and changed, and the claims whose attempt had no end yet."""
    changed = _write_rows.run(conn, [(*f.claim, *transition_row(f.transition)) for f in finished], owner=owner)
    owned = {(row.notification_id, row.claim_token) for row in changed}
    ended = _end_attempts.run(conn, [(*f.claim, *end_row(f)) for f in finished])
    entries = []
    for f, first, second in zip(finished, event_ids[::2], event_ids[1::2], strict=True):
        if f.claim in owned:
            entries.append(entry(first, f, AuditStatus.ATTEMPTED, f.error))
            if f.transition.status.is_terminal:
                error = f.transition.last_error if f.transition.status is Status.PARKED else None
                entries.append(entry(second, f, AuditStatus(f.transition.status.value), error))
    audit.add_for_notifications(conn, owner, entries)
    settle_targets(conn, [(f.notification_id, f.transition, f.finished_at) for f in finished if f.claim in owned])
    return owned, {(row.notification_id, row.claim_token) for row in ended}


def entry(event_id: str, f: Finished, status: AuditStatus, error: str | None) -> audit.NotificationEntry:
    """The audit entry of an attempt or of the end that it led to."""
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
