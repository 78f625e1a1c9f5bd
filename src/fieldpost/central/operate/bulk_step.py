"""One turn of a bulk action: gather some more, or do its verb to the next few, in one transaction.

The act is locked while its turn lasts, and what the turn did commits together with how far the act has come. So any
node may take the next turn, a node that dies loses nothing but the turn it was in, and nothing is done twice.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import records as rows
from fieldpost.central.store.search import bulk_actions, notifications
from fieldpost.central.store.search.bulk_actions import ActRow, BulkStep
from fieldpost.core import lifecycle
from fieldpost.core.audit import AuditKind, AuditStatus
from fieldpost.core.bulk import BulkAction, BulkStatus, BulkVerb, Judgement, RowOutcome, judge
from fieldpost.core.errors import Conflict
from fieldpost.core.ids import new_ids
from fieldpost.core.lifecycle import Transition
from fieldpost.core.notification import Notification, Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter

GATHER_MAX = 1000
BATCH = 200
STAGE_WAIT = timedelta(seconds=1)
"""How soon a stage that has not come out yet is looked at again."""

_RULES: dict[BulkVerb, tuple[Callable[[Notification, datetime], Transition], AuditStatus]] = {
    BulkVerb.RETRY: (lifecycle.retry, AuditStatus.SUBMITTED),
    BulkVerb.DISCARD: (lifecycle.discard, AuditStatus.DISCARDED),
}


@dataclass(frozen=True, slots=True)
class Turned:
    """An act after its turn, None where that failed, and how many notifications were changed in it."""

    act: BulkAction | None
    changed: int = 0


def turn(conn: Connection, action_id: str, *, now: datetime | None) -> Turned | None:
    """Give the act its turn; None when it is not due any more, or another node is at it."""
    found = bulk_actions.take_turn(conn, action_id, now=now)
    if found is None:
        return None
    at = database_time(conn, now)
    if found.act.status is BulkStatus.GATHERING:
        return Turned(_gather(conn, found, at))
    if found.act.settled < found.act.stage_end:
        return _carry_out(conn, found.act, at)
    return Turned(_judge_stage(conn, found.act, at))


def _gather(conn: Connection, found: BulkStep, at: datetime) -> BulkAction:
    act = found.act
    assert act.wanted is not None, "what is about a selection has nothing to gather"
    page = notifications.find(conn, Filter.parse(act.wanted), limit=GATHER_MAX, before=found.gathered_to)
    parked = [n for n in page.notifications if n.terminal_at is not None and n.terminal_at <= act.as_of]
    bulk_actions.add_rows(
        conn,
        act.action_id,
        [
            ActRow(position, n.notification_id, n.version, fingerprint_key(n.last_error) if n.last_error else None)
            for position, n in enumerate(parked, act.total + 1)
        ],
    )
    act = replace(act, total=act.total + len(parked))
    if page.end is not None:
        bulk_actions.keep(conn, act, at, page.end)
        return act
    return _keep(conn, replace(act, status=BulkStatus.RUNNING), at)


def _carry_out(conn: Connection, act: BulkAction, at: datetime) -> Turned:
    batch = bulk_actions.rows_of(conn, act.action_id, after=act.settled, limit=min(BATCH, act.stage_end - act.settled))
    settled, changed = _change(conn, act, batch, at)
    act = bulk_actions.settle(conn, act, settled, at)
    return Turned(_keep(conn, act, at), changed)


def _change(conn: Connection, act: BulkAction, batch: Sequence[ActRow], at: datetime) -> tuple[list[ActRow], int]:
    rule, status = _RULES[act.verb]
    seen = rows.without_bodies(conn, [row.notification_id for row in batch])
    changes = []
    for row in sorted(batch, key=lambda row: row.notification_id):
        n = seen.get(row.notification_id)
        if n is not None and n.version == row.version:
            try:
                changes.append((n, rule(n, at)))
            except Conflict:
                continue  # not parked any more; its outcome says how it stands
    changed = rows.change_many(conn, changes, at)
    audit.add_for_notifications(
        conn,
        None,
        [
            audit.NotificationEntry(event, i, at, AuditKind.OPERATOR_ACTION, status, act.actor, request=act.reason)
            for event, i in zip(new_ids(at, os.urandom(10 * len(changed))), sorted(changed), strict=True)
        ],
        bulk_action_id=act.action_id,
    )
    refused = [row.notification_id for row in batch if row.notification_id not in changed]
    current = {i: n.status for i, n in rows.without_bodies(conn, refused).items()}
    return [_outcome(row, changed, current) for row in batch], len(changed)


def _outcome(row: ActRow, changed: set[str], current: dict[str, Status]) -> ActRow:
    if row.notification_id in changed:
        return replace(row, outcome=RowOutcome.DONE)
    status = current.get(row.notification_id)
    return replace(row, outcome=RowOutcome.GONE if status is None else RowOutcome.CONFLICT, current_status=status)


def _judge_stage(conn: Connection, act: BulkAction, at: datetime) -> BulkAction:
    judgement, error = judge(bulk_actions.tried(conn, act.action_id, act.stage_end))
    match judgement:
        case Judgement.WAIT:
            bulk_actions.keep(conn, act, at + STAGE_WAIT)
            return act
        case Judgement.HALT:
            return _end(conn, replace(act, status=BulkStatus.HALTED, note=f"the same error came back: {error}"), at)
        case Judgement.GO_ON:
            return _keep(conn, replace(act, stage=act.stage + 1), at)


def _keep(conn: Connection, act: BulkAction, at: datetime) -> BulkAction:
    """How far it has come; finished when all have their outcome."""
    if act.settled == act.total:
        return _end(conn, replace(act, status=BulkStatus.FINISHED), at)
    bulk_actions.keep(conn, act, at)
    return act


def _end(conn: Connection, act: BulkAction, at: datetime) -> BulkAction:
    ended = replace(act, ended_at=at)
    bulk_actions.keep(conn, ended, None)
    return ended
