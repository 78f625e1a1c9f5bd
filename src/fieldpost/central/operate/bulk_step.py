"""One step of a bulk action: collect more notifications, or apply the verb to the next few, in one transaction.

The step locks the action and commits its changes together with the progress of the action. So any node may take the
next step, a node that dies loses only the step it was in, and no notification is changed twice.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.operate.recovery import gather_recovery
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import records as rows
from fieldpost.central.store.search import bulk_actions, notifications
from fieldpost.central.store.search.bulk_actions import BulkRow, BulkStep
from fieldpost.core.audit import AuditKind, AuditStatus
from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, Judgement, RowOutcome, judge
from fieldpost.core.delivery import lifecycle
from fieldpost.core.delivery.lifecycle import Transition
from fieldpost.core.errors import Conflict
from fieldpost.core.ids import new_ids
from fieldpost.core.notification import Notification, Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter

GATHER_MAX = 1000
BATCH = 200
STAGE_WAIT = timedelta(seconds=1)
"""How soon an unfinished stage is checked again."""

_RULES: dict[BulkVerb, tuple[Callable[[Notification, datetime], Transition], AuditStatus]] = {
    BulkVerb.RETRY: (lifecycle.retry, AuditStatus.SUBMITTED),
    BulkVerb.DISCARD: (lifecycle.discard, AuditStatus.DISCARDED),
}


@dataclass(frozen=True, slots=True)
class StepDone:
    """An action after a step (None if the step failed), and how many notifications the step changed."""

    action: BulkAction | None
    changed: int = 0


def step(conn: Connection, action_id: str, *, now: datetime | None) -> StepDone | None:
    """Take the next step; None if the action is no longer due or another node works on it."""
    found = bulk_actions.take_turn(conn, action_id, now=now)
    if found is None:
        return None
    at = database_time(conn, now)
    if found.action.status is BulkStatus.GATHERING:
        return StepDone(_gather(conn, found, at))
    if found.action.settled < found.action.stage_end:
        return _carry_out(conn, found.action, at)
    return StepDone(_judge_stage(conn, found.action, at))


def _gather(conn: Connection, found: BulkStep, at: datetime) -> BulkAction:
    action = found.action
    if action.recovers is not None:
        action, end = gather_recovery(conn, found, at)
        if end is not None:
            bulk_actions.keep(conn, action, at, end)
            return action
        return _keep(conn, replace(action, status=BulkStatus.RUNNING), at)
    assert action.wanted is not None, "a selection needs no collecting"
    page = notifications.find(conn, Filter.parse(action.wanted), limit=GATHER_MAX, before=found.gathered_to)
    parked = [n for n in page.notifications if n.terminal_at is not None and n.terminal_at <= action.as_of]
    bulk_actions.add_rows(
        conn,
        action.action_id,
        [
            BulkRow(position, n.notification_id, n.version, fingerprint_key(n.last_error) if n.last_error else None)
            for position, n in enumerate(parked, action.total + 1)
        ],
    )
    action = replace(action, total=action.total + len(parked))
    if page.end is not None:
        bulk_actions.keep(conn, action, at, page.end)
        return action
    return _keep(conn, replace(action, status=BulkStatus.RUNNING), at)


def _carry_out(conn: Connection, action: BulkAction, at: datetime) -> StepDone:
    batch = bulk_actions.rows_of(
        conn, action.action_id, after=action.settled, limit=min(BATCH, action.stage_end - action.settled)
    )
    settled, changed = _change(conn, action, batch, at)
    action = bulk_actions.settle(conn, action, settled, at)
    return StepDone(_keep(conn, action, at), changed)


def _change(conn: Connection, action: BulkAction, batch: Sequence[BulkRow], at: datetime) -> tuple[list[BulkRow], int]:
    rule, status = _RULES[action.verb]
    seen = rows.without_bodies(conn, [row.notification_id for row in batch])
    changes = []
    for row in sorted(batch, key=lambda row: row.notification_id):
        n = seen.get(row.notification_id)
        if n is not None and n.version == row.version:
            try:
                changes.append((n, rule(n, at)))
            except Conflict:
                continue  # no longer parked; its outcome records the present status
    changed = rows.change_many(conn, changes, at)
    audit.add_for_notifications(
        conn,
        None,
        [
            audit.NotificationEntry(
                event, i, at, AuditKind.OPERATOR_ACTION, status, action.actor, request=action.reason
            )
            for event, i in zip(new_ids(at, os.urandom(10 * len(changed))), sorted(changed), strict=True)
        ],
        bulk_action_id=action.action_id,
    )
    refused = [row.notification_id for row in batch if row.notification_id not in changed]
    current = {i: n.status for i, n in rows.without_bodies(conn, refused).items()}
    return [_outcome(row, changed, current) for row in batch], len(changed)


def _outcome(row: BulkRow, changed: set[str], current: dict[str, Status]) -> BulkRow:
    if row.notification_id in changed:
        return replace(row, outcome=RowOutcome.DONE)
    status = current.get(row.notification_id)
    return replace(row, outcome=RowOutcome.GONE if status is None else RowOutcome.CONFLICT, current_status=status)


def _judge_stage(conn: Connection, action: BulkAction, at: datetime) -> BulkAction:
    judgement, error = judge(bulk_actions.tried(conn, action.action_id, action.stage_end))
    match judgement:
        case Judgement.WAIT:
            bulk_actions.keep(conn, action, at + STAGE_WAIT)
            return action
        case Judgement.HALT:
            note, key = f"the same error occurred again: {error}", fingerprint_key(error or "")
            return _end(conn, replace(action, status=BulkStatus.HALTED, note=note, halting_error_key=key), at)
        case Judgement.GO_ON:
            return _keep(conn, replace(action, stage=action.stage + 1), at)


def _keep(conn: Connection, action: BulkAction, at: datetime) -> BulkAction:
    """Store the progress; the action is finished when every row has its outcome."""
    if action.settled == action.total:
        return _end(conn, replace(action, status=BulkStatus.FINISHED), at)
    bulk_actions.keep(conn, action, at)
    return action


def _end(conn: Connection, action: BulkAction, at: datetime) -> BulkAction:
    ended = replace(action, ended_at=at)
    bulk_actions.keep(conn, ended, None)
    return ended
